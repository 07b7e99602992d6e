"""The program by which a guest without the tool finds out whether its huge pages are whole."""

import re
import subprocess

import pytest
from support.common import ROOT, needs_c

SOURCE = ROOT / "kernels/programs/splintered_pages.c"
TRANSLATION = re.compile(r"^translation on (base|huge) pages: (\S+) ns a load \((\S+) to (\S+) in")


@needs_c
@pytest.mark.measures
def test_the_verdict_follows_from_the_printed_medians_and_ranges(tmp_path):
    built = tmp_path / "splintered_pages"
    strict = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["cc", "-O2", *strict, SOURCE, "-o", built], check=True)
    done = subprocess.run([built], capture_output=True, text=True)
    if done.returncode == 3:  # no huge pages to be had: a reason, and no verdict
        assert done.stderr and "splintered" not in done.stdout
        return
    assert done.returncode == 0
    *lines, verdict = done.stdout.splitlines()
    found = {
        match[1]: [float(n) for n in match.groups()[1:]]
        for match in map(TRANSLATION.match, lines)
        if match
    }
    assert found.keys() == {"base", "huge"}
    for median, least, most in found.values():
        assert least <= median <= most
    (median, least, _), (huge, _, _) = found["base"], found["huge"]
    if verdict.startswith("whole"):
        assert huge < median / 2
    elif verdict.startswith("splintered"):
        assert huge > least / 2
    else:
        assert verdict.startswith("cannot tell")
