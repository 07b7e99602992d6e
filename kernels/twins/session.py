"""Many points in one process and, where they fit, in one arena: a plan on stdin, a line a point, and an answer a line.

    python -m kernels.twins.session --pages thp --bytes 4294967296

    ID KERNEL MODE LAYOUT ORDER LINES STRIDE_PAGES SEED REGION_MS [--name value ...]

An answer is the kernel's record or why there is none, with the ID; its position; and "proved": of how many lines answered so far smaps has
since shown that their pages were those asked for. --fresh 1 gives a point an arena of its own."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from importlib import import_module
from typing import Any

from kernels.twins import region
from kernels.twins.arena import Arena, map_arena, page_table_bytes, verify_backing
from kernels.twins.arguments import PAGES, NoNumber, bad_argument, exiting, now_ns, parse_arguments, unavailable

KERNELS = {"numba": ("page_chase", "page_gather", "random_touch", "stride_sum", "graph_walk"), "numpy": ("page_gather",)}
PACKAGES = {"numba": "kernels.twins", "numpy": "kernels.published"}
# Answers between two readings of smaps. On base pages a reading takes tens of ms; others can be split at any time.
UNPROVED = {"base": 100, "pool": 100}


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Session:
    """Points that are measured one after another, and how many of them are proved."""

    def __init__(self, config: Namespace) -> None:
        self.config, self.answered, self.proved, self.compiled = config, 0, 0, set[str]()
        begin = now_ns()
        self.shared: Arena | None = map_arena(config.pages, config.bytes, config.cpus) if config.bytes else None
        answer(mapped=self.shared.bytes if self.shared else 0, populate_ns=now_ns() - begin, page_table_bytes=page_table_bytes(), proved=0)

    def prove(self) -> None:
        """All lines answered so far; what fails here ends the process."""
        if self.shared:
            verify_backing(self.shared)
        self.proved = self.answered

    def point(self, words: list[str]) -> tuple[Namespace, region.Measure, bool]:
        """What a line of the plan asks for: its arguments, what measures it, whether in an arena of its own."""
        whole, names = self.config, ("mode", "layout", "order", "lines", "stride_pages", "seed", "region-ms")
        if len(words) < 9 or words[1] not in KERNELS[whole.engine]:
            bad_argument(f"a line is ID KERNEL MODE LAYOUT ORDER LINES STRIDE_PAGES SEED REGION_MS, not '{' '.join(words)}'.")
        given, own = dict(zip(names, words[2:9], strict=True)), dict(zip(words[9::2], words[10::2], strict=False))
        fresh, module = own.pop("--fresh", "0") == "1", import_module(f"{PACKAGES[whole.engine]}.{words[1]}")
        if (stride := given.pop("stride_pages")) != "1":
            unavailable("engine-lacks", f"stride_pages {stride}")
        if given["mode"] == "-":
            del given["mode"]
        config = module.asked([word for pair in ({f"--{name}": value for name, value in given.items()} | own).items() for word in pair] + [
            "--pages", whole.pages, "--cpu", str(whole.cpu), f"--perf-fds={whole.perf_fds}", *["--fifo"] * whole.fifo])
        config.cpus = whole.cpus
        return config, module.measure_point, fresh

    def measured(self, words: list[str]) -> tuple[region.Record, bool]:
        """The record of a point, and whether it has been proved."""
        config, measure_point, fresh = self.point(words)
        config.started_ns, needed = now_ns(), region.working_set(config)
        what = " ".join([*words[1:3], words[4], *words[9::2]])  # decides which functions it runs
        if what not in self.compiled:
            region.compiled(config, measure_point)
            self.compiled.add(what)
        config.started_ns = now_ns()
        if self.shared is None or fresh or needed > self.shared.bytes:
            return region.in_its_own_arena(config, measure_point), True
        return measure_point(config, self.shared.first(needed)), False

    def answer_line(self, words: list[str]) -> None:
        if self.answered % UNPROVED.get(PAGES[self.config.pages][0], 1) == 0:
            self.prove()
        id = {"id": words[0] if words else ""}
        try:
            found, is_proved = self.measured(words)
            found = id | found | {"position": self.answered}
        except NoNumber as lack:
            found, is_proved = id | lack.why, True
        if is_proved and self.proved == self.answered:
            self.proved += 1
        self.answered += 1
        answer(**found, proved=self.proved)


def serve(engine: str = "numba") -> None:
    """The plan on stdin, to its end."""
    with exiting():
        words = [word for word in sys.argv[1:] if word != "--plan"]
        config = parse_arguments("session", ["cycle"], own={"bytes": (0, 0, 1 << 46)}, engine=engine, words=words)
        region.start(config)
        session = Session(config)
        for line in sys.stdin:
            session.answer_line(line.split())
        session.prove()
        answer(end=session.answered, proved=session.proved)


if __name__ == "__main__":
    serve()
