"""Many points in one process and, where they fit, in one arena: kernels/plan.h.

python -m kernels.twins.session --pages thp --bytes 4294967296

ID KERNEL MODE LAYOUT ORDER LINES STRIDE_PAGES SEED REGION_MS [--name value ...]
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from importlib import import_module
from typing import Any

from kernels.twins import region
from kernels.twins.arena import Arena, map_arena, page_table_bytes, verify_backing
from kernels.twins.arguments import (
    PAGES,
    NoNumber,
    bad_argument,
    exiting,
    now_ns,
    parse_arguments,
    unavailable,
)

KERNELS = {
    "numba": ("page_chase", "page_gather", "random_touch", "stride_sum"),
    "numpy": ("page_gather",),
}
PACKAGES = {"numba": "kernels.twins", "numpy": "kernels.published"}
# Answers between two readings of smaps, which takes tens of ms on base pages. THP can be split at
# any time.
UNPROVED = {"base": 100, "pool": 100, "thp": 1, "mthp": 1}


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def point_of(words: list[str], whole: Namespace) -> tuple[Namespace, region.Measure]:
    """A plan's line as a point and what measures it; whole: the session's arguments."""
    if len(words) < 9 or words[1] not in KERNELS[whole.engine]:
        bad_argument(
            "A line is ID KERNEL MODE LAYOUT ORDER LINES STRIDE_PAGES SEED REGION_MS, "
            f"of another kernel than '{words[1:2]}'."
        )
    _, kernel, mode, layout, order, lines, stride, seed, region_ms, *own = words
    if stride != "1":
        unavailable("engine-lacks", f"stride_pages {stride}")
    module = import_module(f"{PACKAGES[whole.engine]}.{kernel}")
    given = {"layout": layout, "order": order, "lines": lines, "seed": seed, "region-ms": region_ms}
    given |= {"pages": whole.pages, "cpu": str(whole.cpu)} | ({"mode": mode} if mode != "-" else {})
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    argv = [*own, *words, f"--perf-fds={whole.perf_fds}", *["--fifo"] * whole.fifo]
    config = module.asked(argv)
    config.cpus = whole.cpus
    return config, module.measure_point


class Session:
    """Points that are measured one after another, and how many of their answers are proved."""

    def __init__(self, config: Namespace) -> None:
        self.config, self.answered, self.proved, self.compiled = config, 0, 0, set[str]()
        self.shared: Arena | None = (
            map_arena(config.pages, config.bytes, config.cpus) if config.bytes else None
        )

    def prove(self) -> None:
        """Of what fails here no further answer comes: the process ends."""
        if self.shared:
            verify_backing(self.shared)
        self.proved = self.answered

    def measured(self, words: list[str]) -> tuple[region.Record, bool]:
        """The record of a point, and whether its own smaps has proved it."""
        config, measure_point = point_of(words, self.config)
        what = " ".join([*words[1:3], words[4], *words[9::2]])  # decides which functions it runs
        if what not in self.compiled:
            region.compiled(config, measure_point)
            self.compiled.add(what)
        config.started_ns, needed = now_ns(), region.working_set(config)
        if self.shared is None or needed > self.shared.bytes:
            tables = page_table_bytes() or 0
            found = region.in_its_own_arena(config, measure_point)
            if "page_table_bytes" in found:
                found["page_table_bytes"] = max(found["page_table_bytes"] - tables, 0)
            return found, True
        found = measure_point(config, self.shared.first(needed))
        found.pop("page_table_bytes", None)  # the mapping's, which the first line of the output has
        return found, False

    def answer_to(self, words: list[str]) -> None:
        if self.answered - self.proved >= UNPROVED[PAGES[self.config.pages][0]]:
            self.prove()
        try:
            found, is_proved = self.measured(words)
            found["position"] = self.answered
        except NoNumber as lack:
            found, is_proved = lack.why, True
        self.proved += is_proved and self.proved == self.answered
        self.answered += 1
        answer(id=words[0] if words else "", **found, proved=self.proved)


def serve(engine: str = "numba") -> None:
    """The plan on stdin, to its end."""
    with exiting():
        config = parse_arguments(
            "session",
            ["cycle"],
            own={"bytes": (0, 0, 1 << 46)},
            engine=engine,
            words=[word for word in sys.argv[1:] if word != "--plan"],
        )
        region.start(config)
        config.started_ns, session = now_ns(), Session(config)
        took_ns = now_ns() - config.started_ns
        session.prove()
        answer(
            mapped=session.shared.bytes if session.shared else 0,
            populate_ns=took_ns,
            page_table_bytes=page_table_bytes(),
            proved=0,
        )
        for line in sys.stdin:
            session.answer_to(line.split())
        session.prove()
        answer(end=session.answered, proved=session.proved)


if __name__ == "__main__":
    serve()
