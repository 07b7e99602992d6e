"""A sketch of a PerfKitBenchmarker benchmark: chapters measured on one virtual machine, each quantity of its profile as a sample.

To use it, put the file into perfkitbenchmarker/linux_benchmarks/ as tlb_benchmark.py. It has been run against a stub of the library alone.
"""

import json
import shlex

from absl import flags
from perfkitbenchmarker import configs, sample

BENCHMARK_NAME = "tlb"
BENCHMARK_CONFIG = """
tlb:
  description: What address translation costs a virtual machine.
  vm_groups:
    default:
      vm_spec: *default_dual_core
"""
FOLDER = "tlb"
_REPOSITORY = flags.DEFINE_string("tlb_repository", None, "Where the book is cloned from.")
_CHAPTERS = flags.DEFINE_list("tlb_chapters", ["page_faults", "hugepages", "stlb_cliff"], "Chapters to measure, in this order.")
_PROFILE = flags.DEFINE_string("tlb_profile", "quick", "smoke, quick or full.")


def GetConfig(user_config):
    return configs.LoadConfig(BENCHMARK_CONFIG, user_config, BENCHMARK_NAME)


def Prepare(benchmark_spec):
    (vm,) = benchmark_spec.vms
    vm.InstallPackages("git make gcc libc6-dev linux-perf python3-venv")
    vm.RemoteCommand(f"git clone --depth 1 {shlex.quote(_REPOSITORY.value)} {FOLDER} && make -C {FOLDER} site")


def Run(benchmark_spec):
    """A sample a quantity that has a number. One without has none, and not 0: its reason is in the metadata of all."""
    (vm,) = benchmark_spec.vms
    for chapter in _CHAPTERS.value:
        run = shlex.join([".venv/bin/tlb", "run", chapter, "-p", f"profile={_PROFILE.value}", "--json"])
        printed, _ = vm.RemoteCommand(f"cd {FOLDER} && {run}")
    profile = json.loads(printed)
    lacking = {f"lacks_{found['name']}": found["reason"] for found in profile["quantities"] if found["value"] is None}
    return [sample.Sample(found["name"], found["value"], found["unit"],
                          {name: found[name] for name in ("low", "high", "coverage")} | {"machine": profile["machine"]} | lacking)
            for found in profile["quantities"] if found["value"] is not None]


def Cleanup(benchmark_spec):
    del benchmark_spec  # the machine goes, and all with it
