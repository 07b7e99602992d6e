"""Reading /proc and /sys: files that are absent, enormous or no text at all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlb.system import procfs


@given(st.text())
def test_any_text_becomes_a_label_of_one_line(text):
    label = procfs.label(text)
    assert len(label) <= 120 and label == label.strip() and (label.isprintable())


@given(st.sets(st.integers(0, 8191), max_size=40))
def test_a_cpu_list_reads_back_as_the_kernel_would_print_it(cpus):
    assert procfs.cpu_list(",".join(map(str, sorted(cpus)))) == tuple(sorted(cpus))


def test_a_cpu_list_with_ranges_is_read_and_any_other_text_is_none():
    assert procfs.cpu_list("0-2,7,9-9\n") == (0, 1, 2, 7, 9)
    assert procfs.cpu_list("0-2,x") == procfs.cpu_list("") == procfs.cpu_list("-1") == ()


def test_an_enormous_file_is_read_only_to_its_first_mebibyte(tmp_path):
    path = tmp_path / "cpuinfo"
    with path.open("wb") as file:
        file.write(b"model : 7\n")
        file.truncate(2**32)  # sparse: 4 GiB that take no room
    assert len(procfs.text(path)) == 2**20
    assert procfs.fields(procfs.text(path))["model"] == "7"


def test_lines_are_read_beyond_any_size_and_end_at_line_feeds_alone(tmp_path):
    path, first = tmp_path / "maps", "a name with \r and \x0c and \ufffd"
    path.write_bytes(
        first.replace("\ufffd", "\xff").encode("latin-1") + b"\n" + b"x" * 2**21 + b"\nlast"
    )
    assert [line[:40] for line in procfs.lines(path)] == [first, "x" * 40, "last"]
    assert [*procfs.lines(tmp_path / "none")] == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/a/b", "xfs"),
        ("/srv", "xfs"),
        ("/srvs", "ext4"),
        ("/", "ext4"),
        ("/with space/x", "tmpfs"),
        ("/mnt/deep/file", "btrfs"),
        ("/cut/file", "jfs"),
        ("/short/file", "ext4"),
    ],
)
def test_a_path_lies_on_the_file_system_of_the_longest_mount_point_above_it(tmp_path, path, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\n/dev/b /srv xfs rw 0 0\nnone /with\\040space tmpfs rw 0 0\n"
        "/dev/c /mnt/deep btrfs rw 0 0\n/dev/d /cut jfs\n/dev/e /short\n"
    )
    assert procfs.file_system(Path(path), mounts) == kind
    assert procfs.file_system(Path(path), tmp_path / "none") == "unknown"
