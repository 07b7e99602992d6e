"""A copy of the checkout that a test may change: the files that git tracks or would, in a
repository of its own."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tlb.system.files import ROOT


@dataclass(frozen=True)
class Copy:
    """A checkout at `path`, whose rows go to a data folder of its own where `data` is given."""

    path: Path
    data: Path | None = None

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Python with these words in the copy, whose packages it then imports."""
        given = {"PYTHONPATH": str(self.path)} | ({"TLB_DATA": str(self.data)} if self.data else {})
        how = {"cwd": self.path, "env": os.environ | given, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *words], **how)
        assert not check or done.returncode == 0, (
            f"{' '.join(words)[:200]}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        )
        return done

    def tlb(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("-c", "from tlb.cli import main; main()", *words, check=check)

    def edit(self, file: str, *changes: tuple[str, str]) -> None:
        """Put the second text of each pair in the place of the first, which stands in the file
        exactly once."""
        path = self.path / file
        text = path.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{file}: {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        path.write_text(text)

    def write(self, file: str, text: str) -> None:
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        """What differs by now is as it is."""
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        for words in (["add", "-A"], [*who, "commit", "-q", "--allow-empty", "-m", "as it is"]):
            subprocess.run(["git", *words], cwd=self.path, check=True, capture_output=True)

    def changed(self) -> set[str]:
        """The files that differ from the checkout's, as git sees them."""
        command = ["git", "status", "--porcelain", "--untracked-files=all"]
        printed = subprocess.check_output(command, cwd=self.path, text=True)
        return {line[3:].strip('"') for line in printed.splitlines()}


def copy_of_checkout(path: Path, data: Path | None = None) -> Copy:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, path / name)
    subprocess.run(["git", "init", "-q"], cwd=path, check=True, capture_output=True)
    copy = Copy(path, data)
    copy.commit()
    return copy
