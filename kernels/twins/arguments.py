"""A numba kernel's arguments and refusals: the contract of kernels/arguments.h, with the same exit
codes."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NoReturn

LINE = 64
# As in kernels/pages.h; a base page's size is the machine's.
PAGES = {
    "4k": ("base", 0),
    **{f"{kib}k": ("mthp", kib << 10) for kib in (16, 32, 64, 128, 256, 512)},
    "1m": ("mthp", 1 << 20),
    "thp": ("thp", 2 << 20),
    "2m": ("pool", 2 << 20),
    "1g": ("pool", 1 << 30),
}


class NoNumber(Exception):
    """Why a point cannot be measured: JSON on stderr and exit 3 or, for a bad argument, a sentence
    and exit 2."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(
            detail if status == 2 else json.dumps({"reason": reason, "detail": detail})
        )
        self.status, self.why = status, {"reason": reason, "detail": detail}


def unavailable(reason: str, detail: str) -> NoReturn:
    raise NoNumber(3, reason, detail)


def bad_argument(sentence: str) -> NoReturn:
    raise NoNumber(2, "bad-parameter", sentence)


@contextmanager
def exiting() -> Iterator[None]:
    """End the process as the contract says."""
    try:
        yield
    except NoNumber as lack:
        print(lack, file=sys.stderr)
        raise SystemExit(lack.status) from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        bad_argument(message)  # argparse would print the usage too


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def natural(least: int, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"\d{1,20}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"takes a whole number from {least} to {most}, not '{text}'."
            )
        return int(text)

    return convert


def parse_arguments(
    kernel: str,
    orders: list[str],
    layouts: Sequence[str] = ("spread", "packed"),
    modes: Sequence[str] = (),
    own: Mapping[str, tuple[int, int, int]] = MappingProxyType({}),
    engine: str = "numba",
    words: list[str] | None = None,
) -> argparse.Namespace:
    """Parse `words`, by default the command line's. The first of orders, layouts and modes is the
    default; own: numbers of one kernel, name -> (default, least, most)."""
    parser = _Parser(prog=kernel, allow_abbrev=False)
    parser.add_argument("--pages", default="4k", choices=list(PAGES))
    parser.add_argument("--cpu", default=max(os.sched_getaffinity(0)), type=natural(0, 1 << 20))
    parser.add_argument("--fifo", action="store_true")
    parser.add_argument("--perf-fds", default="-1,-1")
    parser.add_argument("--layout", default=layouts[0], choices=layouts)
    parser.add_argument("--order", default=orders[0], choices=orders)
    parser.add_argument("--lines", default=4096, type=natural(1, 1 << 32))
    parser.add_argument("--seed", default=1, type=natural(0, (1 << 63) - 1))
    parser.add_argument("--region-ms", default=60, type=natural(1, 60_000))
    parser.add_argument("--warm-hops", default=0, type=natural(1, 1 << 32))
    if modes:
        parser.add_argument("--mode", default=modes[0], choices=modes)
    for name, (_, least, most) in own.items():
        parser.add_argument(f"--{name}", type=natural(least, most))
    config = parser.parse_args(words)
    config.mode = config.mode if modes else ""
    config.options = [
        [name, getattr(config, name)] for name in own if getattr(config, name) is not None
    ]
    vars(config).update(
        {name: default for name, (default, _, _) in own.items() if getattr(config, name) is None}
    )
    if not re.fullmatch(r"-?\d+,-?\d+", config.perf_fds):
        parser.error("--perf-fds takes two file descriptors, CONTROL,ACK.")
    if config.cpu not in os.sched_getaffinity(0):
        parser.error(f"CPU {config.cpu} is not one this process may use.")
    config.control_fd, config.ack_fd = (int(fd) for fd in config.perf_fds.split(","))
    config.started_ns = now_ns()
    config.kernel, config.engine, config.packed = kernel, engine, config.layout == "packed"
    return config
