"""What can go wrong with a guest, in the order of the issue's list: each fault gives its reason and no record.

guest_chase runs as it is, on the KVM of another machine that tests/support/other_kvm.c plays, so that each test is the same on a computer
with KVM and on one without. Where /dev/kvm opens, faults that a program can make are made in a real guest too.
"""

from __future__ import annotations

import errno
import grp
import os
import platform
from pathlib import Path

import pytest
from support.guest import guest, real
from support.kernels import for_arm64, measured, needs_emulator, run_program, why_not
from support.lab import MACHINE, run

from experiments.lab import perf
from experiments.lab.store import Store

pytestmark = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.needs("a C compiler"),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="the guest is one of x86-64")]
MIB = 2**20
EXIT = {"hlt": 5, "memory that it has not": 6, "a triple fault": 8, "entry refused": 9, "internal error": 17, "a breakpoint": 4}
# --- no /dev/kvm, no permission, nothing behind the module


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.ENXIO])
def test_a_computer_without_the_device_has_no_kvm(kvm, number: int):
    kvm(open=number)
    assert why_not(guest(), "no-kvm") == f"/dev/kvm: {os.strerror(number)}"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_user_without_permission_is_told_the_group_to_join(kvm, number: int):
    group = grp.getgrall()[-1]
    kvm(open=number, group=group.gr_gid)
    assert why_not(guest(), "kvm-permission") == f"/dev/kvm: {os.strerror(number)}; its group is {group.gr_name}"
    kvm(open=number, group=987654321)
    assert why_not(guest(), "kvm-permission").endswith("its group is one without a name")


def test_a_module_with_no_hypervisor_behind_it_is_no_kvm(kvm):
    for number in (errno.ENODEV, errno.EOPNOTSUPP):
        kvm(create_vm=number)
        assert why_not(guest(), "no-kvm") == f"KVM_CREATE_VM: {os.strerror(number)}"
    kvm(api=11)
    assert "version 12" in why_not(guest(), "no-kvm")


def test_nothing_is_faulted_in_where_no_guest_could_run(kvm, monkeypatch):
    """1 TiB of lines, which this computer has not: what KVM lacks is said before."""
    for words, code in (({"open": errno.ENOENT}, "no-kvm"), ({"pdpe1gb": 0}, "page-size-unsupported")):
        kvm(**words)
        why_not(guest("1g", lines=2**28), code)


# --- another architecture


@needs_emulator
def test_an_arm64_computer_is_not_x86(tmp_path: Path):
    done = run_program("qemu-aarch64-static", [for_arm64("guest_chase", tmp_path), "--lines", "64"])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == '{"reason": "not-x86", "detail": "this is arm64"}\n'


# --- page sizes and levels that the CPU of guests has not


@pytest.mark.parametrize("host", ["4k", "thp", "2m", "1g"])
def test_guest_pages_of_1_gib_take_a_cpu_that_has_them(kvm, host: str):
    kvm(pdpe1gb=0)
    assert "pdpe1gb" in why_not(guest("1g", host), "page-size-unsupported")
    assert measured(guest("2m")).mode == "2m"


def test_five_levels_take_a_cpu_that_has_them(kvm):
    kvm(la57=0)
    assert "la57" in why_not(guest(options={"levels": 5}), "no-la57")
    assert measured(guest(options={"levels": 4})).also["guest_levels"] == 4


# --- a crash: the exit reason and rip in the error, no row


@pytest.mark.parametrize("name", EXIT)
@pytest.mark.parametrize("after", [0, 3, 6])
def test_an_exit_that_nobody_asked_for_is_named_with_its_number_and_rip(kvm, name: str, after: int):
    kvm(exit=EXIT[name], **{"from": after})
    detail = why_not(guest(), "guest-crashed")
    assert detail.startswith(f"it left: exit reason {EXIT[name]}, {name}, at rip 0x") and len(detail.rpartition("0x")[2]) >= 9


def test_an_exit_without_a_name_and_another_port_are_told_apart_from_the_end(kvm):
    kvm(exit=37)
    assert "exit reason 37, an exit that nothing here asks for" in why_not(guest(), "guest-crashed")
    kvm(port=17)
    assert "exit reason 2, another port" in why_not(guest(), "guest-crashed")


def test_an_entry_that_fails_says_how(kvm):
    for number in (errno.EFAULT, errno.EINVAL, errno.ENOEXEC):
        kvm(run=number)
        assert why_not(guest(), "guest-crashed").startswith(os.strerror(number))


def test_a_guest_that_leaves_out_a_hop_is_garbage(kvm):
    kvm(hops=1)
    assert "not all were made" in why_not(guest(), "kernel-garbage")


def test_a_guest_whose_clock_counts_too_fast_is_garbage(kvm):
    kvm(tsc=1000)
    assert "its rate is not the host's" in why_not(guest(), "kernel-garbage")


# --- what KVM refuses


@pytest.mark.parametrize(("call", "number", "name"), [
    ("slot", errno.EINVAL, "KVM_SET_USER_MEMORY_REGION"), ("slot", errno.ENOMEM, "KVM_SET_USER_MEMORY_REGION"),
    ("create_vm", errno.EBUSY, "KVM_CREATE_VM"), ("create_vm", errno.ENOMEM, "KVM_CREATE_VM"), ("vcpu", errno.EMFILE, "KVM_CREATE_VCPU"),
    ("tss", errno.EINVAL, "KVM_SET_TSS_ADDR"), ("cpuid", errno.E2BIG, "KVM_GET_SUPPORTED_CPUID"),
    ("set_cpuid", errno.EINVAL, "KVM_SET_CPUID2"), ("sregs", errno.EINVAL, "KVM_SET_SREGS"),
    ("regs", errno.EINVAL, "KVM_SET_REGS"), ("mmap", errno.ENOMEM, "the vCPU's page")])
def test_a_refusal_names_the_call_and_what_it_said(kvm, call: str, number: int, name: str):
    kvm(**{call: number})
    detail = why_not(guest(), "kvm-refused")
    assert detail.startswith(name) and detail.endswith(os.strerror(number))


# --- a vCPU that never exits, one that is emulated


@pytest.mark.parametrize("after", [0, 6])
def test_a_vcpu_that_never_leaves_the_guest_is_ended_by_the_time_limit(kvm, after: int):
    kvm(endless=1, **{"from": after})
    assert why_not(guest(), "kernel-hung") == "the vCPU did not leave the guest in 10 s"


def test_the_time_limit_grows_with_the_memory_and_is_below_the_runners_own(kvm, monkeypatch):
    kvm(endless=1)
    point = guest("2m", lines=2**18 // 2)  # half a GiB
    limits: list[float] = []
    run = perf.run

    def noted(command, plan, timeout_s, **how):
        limits.append(timeout_s)
        return run(command, plan, timeout_s, **how)

    monkeypatch.setattr(perf, "run", noted)
    said = why_not(point, "kernel-hung")
    assert said == "the vCPU did not leave the guest in 35 s" and limits[0] > 2 * 35 - 1


def test_a_signal_of_somebody_else_does_not_end_the_guest(kvm):
    kvm(run=errno.EINTR, times=3, **{"from": 4})
    assert measured(guest()).mode == "4k"


def test_a_guest_whose_hits_cost_thousands_of_cycles_is_emulated(kvm):
    kvm(slow_ms=300)
    assert "a hop in the first-level cache costs" in why_not(guest(), "guest-emulated")


# --- the pool


@pytest.mark.parametrize("mode", ["4k", "2m", "1g"])
def test_the_guests_own_pages_are_of_the_pool_too(hosted, mode: str):
    point = guest(mode, "2m", 8 * 512)  # 16 MiB of lines, and program, talk and tables behind them
    hosted.pool("2m", 8)
    assert "9 pages of 2m needed, 8 free" in why_not(point, "pool-empty")
    hosted.pool("2m", 9)
    record = measured(point)
    assert (record.backing, record.arena_bytes, record.working_set_bytes) == ("2m", 18 * MIB + 2 * 4096, 16 * MIB)
    hosted.set("percent", 87)
    why_not(point, "backing-partial")
    hosted.set("whole", 1)  # split while time runs: smaps is read before the timed region and after it
    why_not(point, "backing-partial")


@pytest.mark.parametrize(("lines", "pages"), [(1, 2), (2**18, 2), (2**18 + 1, 3)])
def test_of_pages_of_1_gib_the_tables_have_one_to_themselves(hosted, lines: int, pages: int):
    hosted.pool("1g", 0)
    assert f"{pages} pages of 1g needed, 0 free" in why_not(guest("2m", "1g", lines), "pool-empty")


def test_thp_never_is_a_reason(hosted):
    hosted.set("mm/transparent_hugepage/enabled", "always madvise [never]")
    why_not(guest(pages="thp"), "thp-never")


def test_no_fault_leaves_a_row(kvm, tmp_path: Path, own_lock: Path):
    kvm(exit=8, **{"from": 6})
    store = Store(tmp_path / "data")
    outcome = run(store, [guest(), guest("2m")], 2, name="virtualization", usable_bytes=2**40, retry_share=0)
    assert {why.code for why in outcome.lacking.values()} == {"guest-crashed"} and outcome.measured == 0
    assert store.load(MACHINE, "virtualization").empty


# --- faults of a real guest


@pytest.mark.parametrize(("code", "expected", "said"), [
    (0x0B0F, "guest-crashed", "exit reason 8, a triple fault, at rip 0x"),  # ud2, and no handler
    (0x00F4, "guest-crashed", "a triple fault, at rip 0x"),  # hlt, which CPL 3 may not
    (0x11E6, "guest-crashed", "exit reason 2, another port, at rip 0x"),  # out %al, $17
    (0xFEEB, "kernel-hung", "did not leave the guest in 10 s"),  # jmp to itself
])
def test_a_real_guest_with_another_program_ends_with_its_reason(kvm, code: int, expected: str, said: str):
    kvm(real=1)
    real(guest())
    kvm(real=1, code=code, **{"endless": 1} if expected == "kernel-hung" else {})
    assert said in why_not(guest(), expected)
