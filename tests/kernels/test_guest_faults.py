"""What can go wrong with a guest: each fault gives its reason and no record.

guest_chase runs as it is, on the KVM that tests/support/other_kvm.c plays, so that each test is the
same on a computer without KVM. Where /dev/kvm opens, faults that a program can make are made in a
real guest too.
"""

import errno
import grp
import os
import platform

import pytest
from support.guest import guest, real
from support.kernels import measured, why_not

pytestmark = [
    pytest.mark.measures,
    pytest.mark.measuring,
    pytest.mark.needs("a C compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the guest is one of x86-64"),
]
MIB = 2**20
# What the stand-in does, the reason, and a part of the detail; the reasons for a refused call are
# all alike.
FAULTS = [
    ({"open": errno.ENOENT}, "no-kvm", f"/dev/kvm: {os.strerror(errno.ENOENT)}"),
    ({"create_vm": errno.EOPNOTSUPP}, "no-kvm", f"KVM_CREATE_VM: {os.strerror(errno.EOPNOTSUPP)}"),
    ({"api": 11}, "no-kvm", "version 12"),
    ({"exit": 5}, "kernel-failed", "it left: exit reason 5, hlt, at rip 0x"),
    ({"exit": 8, "from": 6}, "kernel-failed", "it left: exit reason 8, a triple fault, at rip 0x"),
    ({"exit": 37}, "kernel-failed", "exit reason 37, an exit that nothing here asks for"),
    ({"port": 17}, "kernel-failed", "exit reason 2, another port"),
    ({"run": errno.EFAULT}, "kernel-failed", os.strerror(errno.EFAULT)),
    ({"hops": 1}, "kernel-failed", "not all were made"),
    ({"tsc": 1000}, "kernel-failed", "its rate is not the host's"),
    ({"slow_ms": 300}, "emulated", "a hop in the first-level cache costs"),
    ({"endless": 1}, "kernel-failed", "the vCPU did not leave the guest in 10 s"),
    ({"endless": 1, "from": 6}, "kernel-failed", "the vCPU did not leave the guest in 10 s"),
    *(
        ({call: number}, "kernel-failed", f"{name}: {os.strerror(number)}")
        for call, number, name in [
            ("slot", errno.EINVAL, "KVM_SET_USER_MEMORY_REGION"),
            ("create_vm", errno.EBUSY, "KVM_CREATE_VM"),
            ("vcpu", errno.EMFILE, "KVM_CREATE_VCPU"),
            ("tss", errno.EINVAL, "KVM_SET_TSS_ADDR"),
            ("cpuid", errno.E2BIG, "KVM_GET_SUPPORTED_CPUID"),
            ("set_cpuid", errno.EINVAL, "KVM_SET_CPUID2"),
            ("sregs", errno.EINVAL, "KVM_SET_SREGS"),
            ("regs", errno.EINVAL, "KVM_SET_REGS"),
        ]
    ),
    ({"mmap": errno.ENOMEM}, "kernel-failed", "the vCPU's page could not be mapped"),
]


@pytest.mark.parametrize(("fault", "code", "detail"), FAULTS)
def test_a_fault_gives_its_reason(kvm, fault, code, detail):
    kvm(**fault)
    assert detail in why_not(guest(), code)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_user_without_permission_learns_which_group_to_join(kvm, number):
    group = grp.getgrall()[-1]
    kvm(open=number, group=group.gr_gid)
    why = why_not(guest(), "not-permitted")
    assert os.strerror(number) in why and why.endswith(f": {group.gr_name}")
    kvm(open=number, group=987654321)
    assert why_not(guest(), "not-permitted").endswith(": one without a name")


def test_nothing_is_faulted_in_where_no_guest_could_run(kvm):
    """1 TiB of lines, which no computer here has: what KVM lacks comes first."""
    for fault, code in (
        ({"open": errno.ENOENT}, "no-kvm"),
        ({"pdpe1gb": 0}, "page-size-unsupported"),
    ):
        kvm(**fault)
        why_not(guest("1g", lines=2**28), code)


def test_guest_page_sizes_and_levels_take_a_cpu_that_has_them(kvm):
    kvm(pdpe1gb=0, la57=0)
    assert "pdpe1gb" in why_not(guest("1g"), "page-size-unsupported")
    assert "la57" in why_not(guest(options={"levels": 5}), "no-five-levels")
    assert measured(guest("2m")).also["guest_levels"] == 4
    kvm(sregs=errno.EINVAL)
    assert "KVM_SET_SREGS" in why_not(guest(options={"levels": 5}), "no-five-levels")


def test_a_foreign_signal_does_not_end_the_guest(kvm):
    kvm(run=errno.EINTR, times=3, **{"from": 4})
    assert measured(guest()).mode == "4k"


@pytest.mark.parametrize("mode", ["4k", "1g"])
def test_the_guests_page_tables_are_of_the_pool_too(hosted, mode):
    point = guest(mode, "2m", 8 * 512)  # 16 MiB of lines, and the tables behind them
    hosted.pool("2m", 8)
    assert "9 pages of 2m needed, 8 free" in why_not(point, "pool-empty")
    hosted.pool("2m", 9)
    record = measured(point)
    assert (record.backing, record.arena_bytes, record.working_set_bytes) == (
        "2m",
        18 * MIB + 2 * 4096,
        16 * MIB,
    )
    hosted.set(
        "whole", 1
    )  # split while time runs: smaps is read before the timed region and after it
    hosted.set("percent", 87)
    why_not(point, "backing-partial")


@pytest.mark.parametrize(
    ("code", "expected", "detail"),
    [
        (
            0x0B0F,
            "kernel-failed",
            "exit reason 8, a triple fault, at rip 0x",
        ),  # ud2, and no handler
        (0x11E6, "kernel-failed", "exit reason 2, another port, at rip 0x"),  # out %al, $17
        (0xFEEB, "kernel-failed", "did not leave the guest in 10 s"),  # jmp to itself
    ],
)
def test_a_real_guest_with_another_program_ends_with_its_reason(kvm, code, expected, detail):
    kvm(real=1)
    real(guest())
    kvm(real=1, code=code, **{"endless": 1} if expected == "kernel-failed" else {})
    assert detail in why_not(guest(), expected)
