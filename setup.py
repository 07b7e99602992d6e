"""What pyproject.toml cannot say: a wheel holds `tlb` alone, with the kernels' sources and what
`make dist` has compiled of them (TLB_PREBUILT) below tlb/share, where a clone has them beside it."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

LEFT_OUT = shutil.ignore_patterns("__pycache__", "reference", "programs", "runtimes", "jmh")


class WithShare(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        share = Path(self.build_lib, "tlb", "share")
        shutil.copytree("kernels", share / "kernels", ignore=LEFT_OUT, dirs_exist_ok=True)
        if prebuilt := os.environ.get("TLB_PREBUILT"):
            (share / "prebuilt").mkdir(exist_ok=True)
            shutil.copy(prebuilt, share / "prebuilt")


MAN_PAGES = sorted(map(str, Path("man").glob("*.1")))  # of `make dist`
OF_A_CLONE = ["experiments*", "kernels*"] if "editable_wheel" in sys.argv else []
setup(
    packages=find_packages(include=["tlb*", *OF_A_CLONE]),
    data_files=[("share/man/man1", MAN_PAGES)] if MAN_PAGES else [],
    cmdclass={"build_py": WithShare},
)
