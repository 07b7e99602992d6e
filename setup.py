"""What pyproject.toml cannot say: a wheel holds `tlb` alone, with the kernels' sources and what
`make dist` has compiled of them (TLB_PREBUILT) below tlb/share, where a clone has them beside it.
Its links are absolute: the repository's address is TLB_ADDRESS, or that of _config.yml."""

import os
import re
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


VERSION = re.search(r'(?m)^version = "(.*)"', Path("pyproject.toml").read_text(encoding="utf-8"))[1]
PAGES = {
    "Changelog": "CHANGELOG.md",
    "Documentation": "book/commands.md",
    "Security": "SECURITY.md",
}


def address() -> str:
    """Return the address of the repository, "" if it has none yet."""
    if given := os.environ.get("TLB_ADDRESS"):
        return given.rstrip("/")
    config = Path("_config.yml")
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    found = re.search(r'(?m)^repository:\n(?: .*\n)*? +url: +"(.*?)"', text)
    return found[1].rstrip("/") if found else ""


def readme() -> str:
    """Return the README, whose links to files lead to this version's on the repository's host."""
    text, at = Path("README.md").read_text(encoding="utf-8"), address()
    if not at:
        return text
    text = re.sub(r"(!\[[^]]*\]\()(?!\w+:|#)", rf"\g<1>{at}/raw/v{VERSION}/", text)
    return re.sub(r"(?<!!)(\[[^]]*\]\()(?!\w+:|#)", rf"\g<1>{at}/blob/v{VERSION}/", text)


def urls() -> dict[str, str]:
    if not (at := address()):
        return {}
    pages = {name: f"{at}/blob/v{VERSION}/{page}" for name, page in PAGES.items()}
    return {"Source": at, "Issues": f"{at}/issues", **pages}


MAN_PAGES = sorted(map(str, Path("man").glob("*.1")))  # of `make dist`
OF_A_CLONE = ["experiments*", "kernels*"] if "editable_wheel" in sys.argv else []
setup(
    packages=find_packages(include=["tlb*", *OF_A_CLONE]),
    data_files=[("share/man/man1", MAN_PAGES)] if MAN_PAGES else [],
    cmdclass={"build_py": WithShare},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls=urls(),
)
