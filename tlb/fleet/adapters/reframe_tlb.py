"""A ReFrame test: chapters measured once on a partition's node, and a test a quantity of the
translation profile.

    reframe -c tlb/fleet/adapters/reframe_tlb.py --run -S TranslationRun.parameters=profile:smoke

A quantity that the node could not give is a skipped test with its reason: it has no number, and 0
would be one.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import (
    fixture,
    parameter,
    run_after,
    run_before,
    sanity_function,
    variable,
)

VERSION = 1  # of the profile's schema, data/translation.schema.json
QUANTITIES = """
load_first_level hit_last_level walk_past_last_level walk_over_2_gib
gain_64k gain_thp gain_2m gain_1g
fault_fresh fault_fresh_large fault_file
"""


def profile_of(run):
    """Return the profile that a finished run of the chapters printed."""
    printed = Path(run.stagedir, sn.evaluate(run.stdout))
    return json.loads(sn.evaluate(sn.extractsingle(r"^\{.*\}$", str(printed))))


class TranslationRun(rfm.RunOnlyRegressionTest):
    """Runs the chapters; the last prints the profile, one line of JSON."""

    tlb = variable(str, value=str(Path(__file__).resolve().parents[3] / ".venv" / "bin" / "tlb"))
    chapters = variable(typ.List[str], value=["page_faults", "hugepages", "stlb_cliff"])
    parameters = variable(typ.Dict[str, str], value={"profile": "quick"})
    time_limit = "1h"

    @run_before("run")
    def name_chapters(self):
        given = [option for pair in self.parameters.items() for option in ("-p", "=".join(pair))]
        *before, last = self.chapters
        run = [self.tlb, "run"]
        self.prerun_cmds = [" ".join([*run, chapter, *given, ">&2"]) for chapter in before]
        self.executable, self.executable_opts = self.tlb, ["run", last, *given, "--json"]

    @sanity_function
    def prints_a_profile(self):
        return sn.assert_eq(profile_of(self)["version"], VERSION)


@rfm.simple_test
class Translation(rfm.RunOnlyRegressionTest):
    """One quantity of the profile, in its own unit."""

    quantity = parameter(QUANTITIES.split())
    run_once = fixture(TranslationRun, scope="environment")
    valid_systems = valid_prog_environs = ["*"]
    local, executable = True, "true"  # measured already

    @run_after("setup")
    def read(self):
        quantities = {found["name"]: found for found in profile_of(self.run_once)["quantities"]}
        self.found = quantities.get(self.quantity)
        if self.found is None:
            self.skip(f"{self.quantity}: this version of the book does not measure it")
        if self.found["value"] is None:
            self.skip(f"{self.quantity}: {self.found['reason']} {self.found['detail']}".rstrip())

    @sanity_function
    def has_a_number(self):
        return sn.assert_gt(self.found["value"], 0)

    @run_before("performance")
    def report(self):
        value, unit = sn.defer(self.found["value"]), self.found["unit"]
        self.perf_variables = {self.quantity: sn.make_performance_function(value, unit)}
