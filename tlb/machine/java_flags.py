"""What this computer lists: the modes that its kernel lists, and the flags that its Java has."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from tlb.machine import host
from tlb.system import procfs
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session

DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
JAVA = ("java", "-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintFlagsFinal", "-version")
JAVA_FLAGS = ("UseTransparentHugePages", "UseLargePagesIndividualAllocation")
# those that give a heap large pages
HUGE_PAGE_FLAGS = ("UseLargePages", "UseTransparentHugePages", "UseHugeTLBFS")


class FlagsDocument(BaseModel, extra="forbid", frozen=True):
    """The document `flags` of data/. java_flags: of JAVA_FLAGS those that Java lists; java_on: of
    HUGE_PAGE_FLAGS those that it has on where nobody asks. None without a Java that answers, java_on
    also where an older version asked."""

    schema_version: Literal[1] = 1
    state: str  # host.state_digest()
    defrag_modes: tuple[str, ...]
    java_flags: tuple[str, ...] | None
    java_on: tuple[str, ...] | None = None


def make(profile: str) -> dict[str, Any]:
    """The document, whatever the profile. Raises Unavailable("not-linux")."""
    return ask(host.state_digest(host.inspect())).model_dump(mode="json")


def ask(state: str, root: Path = Path("/"), java: tuple[str, ...] = JAVA) -> FlagsDocument:
    """The words of this computer."""
    modes = tuple(procfs.text(root / DEFRAG.lstrip("/")).replace("[", "").replace("]", "").split())
    known, on = None, None
    with suppress(OSError, subprocess.TimeoutExpired):
        printed = run_in_own_session(java, timeout=PROBE_TIMEOUT_S).stdout
        if listed := dict(re.findall(r"^\s*\w+\s+(\w+)\s+:?=\s+(\S+)", printed, re.MULTILINE)):
            known = tuple(flag for flag in JAVA_FLAGS if flag in listed)
            on = tuple(flag for flag in HUGE_PAGE_FLAGS if listed.get(flag) == "true")
    return FlagsDocument(state=state, defrag_modes=modes, java_flags=known, java_on=on)
