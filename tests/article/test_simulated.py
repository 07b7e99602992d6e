"""A machine that was computed: its chapter shows its counts and says at each that it is simulated; no computer's own ever does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from support.common import ROOT
from support.stlb_cliff import CHAPTER, SIMULATED, analysis, simulate
from support.synthetic import MIB, Stated, grid

from experiments.article.analysis import SIMULATED as BEGINS
from experiments.lab.store import Store
from experiments.machine import microarchitecture
from experiments.machine.host import machine_id


def test_the_chapter_of_a_simulated_machine_shows_its_counters_and_says_that_they_are_computed(tmp_path: Path):
    simulate(Store(data := tmp_path / "data"), points=grid(16 * MIB, per_octave=1))
    output = tmp_path / "out.ipynb"
    run = "import json, sys; from pathlib import Path; from experiments.article import publish; " \
          "publish.execute(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))"
    done = subprocess.run([sys.executable, "-c", run, CHAPTER, str(output), json.dumps({"machine": SIMULATED})], cwd=ROOT,
                          env=os.environ | {"TLB_DATA": str(data)}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [one for cell in nbformat.read(output, 4).cells if cell.cell_type == "code" for one in cell.outputs]
    assert not [one for one in shown if one.output_type == "error"]
    plain = [one.data["text/plain"] for one in shown if "data" in one]
    assert sum("simulated: " in text for text in plain) >= 2 and any("computed, not measured" in text for text in plain)
    assert any(re.search(r"simulated\W+Imaginary", text) for text in plain)
    (costs,) = [text for text in plain if "cycles per walk from" in text]
    assert "\t1.00\t28.00\tcounters" in costs and "inferred from time" not in costs


def test_the_committed_chapter_is_of_a_computer_and_never_says_simulated():
    cells = nbformat.read(ROOT / "book" / f"{CHAPTER}.ipynb", 4).cells
    shown = [one.data.get("text/plain", "") + one.data.get("text/markdown", "") for cell in cells if cell.cell_type == "code"
             for one in cell.outputs if "data" in one]
    assert len(shown) > 20 and "simulated" not in json.dumps(shown)
    assert not analysis(machine=Store(ROOT / "data").reference()).is_simulated


def test_no_computer_gets_the_id_of_a_simulated_one():
    intel = {microarchitecture.x86_name("GenuineIntel", 6, model, stepping) for model in range(256) for stepping in (3, 7, 11)}
    amd = {microarchitecture.x86_name("AuthenticAMD", family, model, 0) for family in (0x17, 0x19, 0x1A) for model in range(256)}
    arm = {microarchitecture.arm_name(maker, part) for maker in microarchitecture.IMPLEMENTERS for part in range(0x1000)}
    vendors = (*microarchitecture.VENDORS, *microarchitecture.IMPLEMENTERS.values(), "simulated")
    ids = {machine_id(Stated(changes={"microarchitecture": name, "vendor": vendor}).host())
           for name in intel | amd | arm for vendor in vendors}
    assert len(ids) > 20 and not [one for one in ids if one.startswith(BEGINS)]
    assert analysis(machine=SIMULATED).is_simulated
