"""The levers of `tlb try`: each gives a program other pages without changing the program, and says
how to see from outside that it reached a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Event

from tlb.machine import changed_settings, pools
from tlb.machine.settings import require_thp
from tlb.measure.build import build_preload_library
from tlb.programs import collapse, snapshots
from tlb.system import procfs
from tlb.system.processes import without_thp
from tlb.system.reasons import Unavailable, none_if_unavailable
from tlb.system.units import format_size, parse_size

SHIM = Path(__file__).parent / "shim" / "advise.c"
ALLOCATION_SITES_SOURCE_FILE = Path(__file__).parent / "where" / "tool" / "sites.c"
_PROC = Path("/proc")
_SIZE_KIB = 64  # of the lever `64k`: what arm64 maps by one entry (contiguous bit)
# glibc's malloc on huge pages (2.35). A thread's heap, and a heap of many blocks, grow by less than
# a huge page at a time unless top_pad says more; the threshold is set to where glibc's own
# adaptation would end, because setting the pad stops that adaptation.
_MALLOC = "glibc.malloc.hugetlb=1"
GROWTH = (
    "glibc.malloc.top_pad=0x4000000:glibc.malloc.mmap_threshold=0x2000000"
    ":glibc.malloc.trim_threshold=0x4000000"
)

# jemalloc's variable has the prefix of its functions: none, that of Rust's crate tikv-jemallocator,
# that of a jemalloc built into a program, such as Redis's.
_JEMALLOC = ("MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_MALLOC_CONF")


@dataclass(frozen=True)
class LeverEnvironmentVariable:
    """An environment variable. separator: its value follows the old one; "": it replaces it."""

    name: str
    value: str
    separator: str = ""

    def added(self) -> str:
        before = os.environ.get(self.name)
        return f"{before}{self.separator}{self.value}" if before and self.separator else self.value


def _tunables(value: str) -> tuple[LeverEnvironmentVariable]:
    return (LeverEnvironmentVariable("GLIBC_TUNABLES", value, ":"),)


@dataclass(frozen=True)
class Lever:
    """does: what changes, as words that follow "with". suits: which programs. check: raises Unavailable where this
    computer lacks what the lever needs. variables: of the program's environment. preload: a
    C file, loaded into it as a library. starting: a context held while the program starts, which it
    inherits.
    setting: held while the program runs. given_bytes: what Linux has given so far on the lever's
    pages, which smaps does not tell from base pages. takes_pool: whether it takes pages of the
    pool, and not transparent ones.
    acts: changes the running program, see `collapse_all`. has_reached: whether a process has the
    lever; None if that cannot be seen."""

    name: str
    does: str
    suits: str = ""
    check: Callable[[], object] = lambda: None
    variables: tuple[LeverEnvironmentVariable, ...] = ()
    preload: Path | None = None
    starting: Callable[[], AbstractContextManager[object]] = nullcontext
    setting: Callable[[], AbstractContextManager[object]] = nullcontext
    given_bytes: Callable[[], int] = lambda: 0
    takes_pool: bool = False
    acts: Callable[[collapse.Processes, float, float, Event], collapse.CollapseResult] | None = None
    has_reached: Callable[[int], bool] | None = None

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        """Yield what is added to the program's environment while it runs."""
        added = {variable.name: variable.added() for variable in self.variables}
        with _preloaded(self.preload) as preload, self.setting():
            yield {**added, **preload}


@contextmanager
def _preloaded(source: Path | None) -> Iterator[Mapping[str, str]]:
    """Yield LD_PRELOAD with the shim, or nothing without a source. Spaces and colons end a path there, so a shim under such a
    path is reached through a link."""
    if source is None:
        yield {}
        return
    shim = build_preload_library(source)
    with tempfile.TemporaryDirectory(prefix="tlb-try-") as folder:
        if set(" :") & set(str(shim)):
            link = Path(folder) / shim.name
            link.symlink_to(shim)
            shim = link
        before = os.environ.get("LD_PRELOAD")
        yield {"LD_PRELOAD": f"{shim}:{before}" if before else str(shim)}


def _maps_shim(pid: int) -> bool:
    is_shim = re.compile(rf"/{SHIM.stem}-[0-9a-f]{{16}}$").search
    return any(map(is_shim, procfs.lines(_PROC / str(pid) / "maps")))


def thp_disabled() -> Unavailable:
    """Return why a process that prctl forbids transparent huge pages gets none."""
    return Unavailable(
        "thp-never",
        "for this process and what it starts, by prctl",
        "Start the command from a shell or service that does not set PR_SET_THP_DISABLE.",
    )


def _thp_not_disabled() -> None:
    if snapshots.process_has_no_thp(os.getpid()):
        raise thp_disabled()


def _collapse_allowed() -> None:
    _thp_not_disabled()
    collapse.check()
    # Of a program with a memory of its own: a process may always collapse its own.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        refusal = collapse.refusal(child.pid)
        child.kill()
    if refusal == "EPERM":
        raise collapse.not_permitted()


def _thp_allowed() -> None:
    _thp_not_disabled()
    require_thp()


def _pool_filled(root: Path = Path("/")) -> None:
    page = pools.default_page(root)
    if not page:
        raise Unavailable("page-size-unsupported", "this Linux kernel has no pool of huge pages")
    if not pools.available(page, root):
        raise Unavailable("pool-empty", page)
    if limits := pools.cgroup_limits_below(page, parse_size(page), root):
        raise pools.limited(limits)


def pool_limit_words() -> str:
    """Return in words what the cgroup allows a program that takes pages of the pool, "" without
    limits."""
    return pools.cgroup_limits_below(pools.default_page(), inf)


def _size_allowed(root: Path = Path("/")) -> None:
    _thp_allowed()
    sizes = changed_settings.sizes(root)
    if _SIZE_KIB not in sizes:
        size = format_size(_SIZE_KIB << 10)
        raise Unavailable("page-size-unsupported", f"transparent pages of {size}")
    for name in sizes.values():
        changed_settings.may_write(root, name)


@contextmanager
def only_size(root: Path = Path("/")) -> Iterator[None]:
    """Let Linux give transparent pages of 64 KiB alone meanwhile, to memory that asks. Raises
    Unavailable as `changed_settings.borrow` does."""
    with changed_settings.borrowing(root, "try"):
        for kib, name in changed_settings.sizes(root).items():
            wanted = "madvise" if kib == _SIZE_KIB else "never"
            changed_settings.borrow(name, wanted, root, "try")
        yield


def _given_bytes(root: Path = Path("/")) -> int:
    """Return what Linux has given in pages of 64 KiB since boot; 0 before Linux 6.10, which does
    not count them."""
    folder = (root / changed_settings.sizes(root)[_SIZE_KIB]).parent
    return (procfs.number(folder / "stats/anon_fault_alloc") or 0) * (_SIZE_KIB << 10)


LEVERS: dict[str, Lever] = {
    lever.name: lever
    for lever in (
        Lever("none", "nothing changed", "a check of the method: no difference is right"),
        Lever(
            "advise",
            "huge pages requested for each new mapping, by a preloaded library and glibc's malloc",
            "any that is dynamically linked",
            _thp_allowed,
            _tunables(f"{_MALLOC}:{GROWTH}"),
            preload=SHIM,
            has_reached=_maps_shim,
        ),
        Lever(
            "64k",
            "what advise requests, on pages of 64 KiB instead of huge ones (root; changes settings of "
            "Linux meanwhile)",
            "one for which whole huge pages take too much memory",
            _size_allowed,
            _tunables(f"{_MALLOC}:{GROWTH}"),
            preload=SHIM,
            setting=only_size,
            given_bytes=_given_bytes,
            has_reached=_maps_shim,
        ),
        Lever(
            "advise-control",
            "glibc's malloc growing in the steps of advise, on the pages that it has",
            "the part of advise that is not huge pages (--against)",
            variables=_tunables(GROWTH),
        ),
        Lever(
            "collapse",
            "its memory moved to huge pages from outside while it runs",
            "static ones, and any that runs for seconds; --pid",
            _collapse_allowed,
            acts=collapse.collapse_all,
        ),
        Lever(
            "malloc",
            "huge pages requested by glibc's malloc",
            "C, C++, Rust with glibc 2.35",
            _thp_allowed,
            _tunables(_MALLOC),
        ),
        Lever(
            "malloc-pool",
            "glibc's malloc on the pool of huge pages",
            "the same, where `tlb pool` has pages",
            _pool_filled,
            _tunables("glibc.malloc.hugetlb=2"),
            takes_pool=True,
        ),
        Lever(
            "no-thp",
            "transparent huge pages disabled for it",
            "one that has huge pages: what they are worth",
            _thp_not_disabled,
            starting=without_thp,
            has_reached=snapshots.process_has_no_thp,
        ),
        Lever(
            "jvm",
            "a JVM's heap on transparent huge pages (ZGC's, which is shared memory, only with "
            "shmem_enabled at advise)",
            "Java, Scala, Kotlin",
            _thp_allowed,
            (LeverEnvironmentVariable("JAVA_TOOL_OPTIONS", "-XX:+UseTransparentHugePages", " "),),
        ),
        Lever(
            "jvm-pool",
            "a JVM's heap on the pool of huge pages",
            "the same, where `tlb pool` has pages",
            _pool_filled,
            (LeverEnvironmentVariable("JAVA_TOOL_OPTIONS", "-XX:+UseLargePages", " "),),
            takes_pool=True,
        ),
        Lever(
            "jemalloc",
            "huge pages requested by jemalloc",
            "Redis, RocksDB, Rust with jemalloc",
            _thp_allowed,
            tuple(LeverEnvironmentVariable(name, "thp:always", ",") for name in _JEMALLOC),
        ),
        Lever(
            "node-text",
            "the code of Node.js itself on huge pages",
            "Node.js",
            _thp_allowed,
            (LeverEnvironmentVariable("NODE_OPTIONS", "--use-largepages=silent", " "),),
        ),
        Lever(
            "numpy-off",
            "NumPy no longer requesting huge pages",
            "NumPy: what its huge pages are worth",
            variables=(LeverEnvironmentVariable("NUMPY_MADVISE_HUGEPAGE", "0"),),
        ),
    )
}


def _assignments(option: str, texts: list[str]) -> list[tuple[str, str]]:
    """Return names with values, of texts NAME=VALUE. Raises Unavailable("bad-parameter")."""
    for text in texts:
        if not re.match("[^=]+=", text):
            raise Unavailable("bad-parameter", f"{option} takes NAME=VALUE, not '{text}'")
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]


def environment_lever(texts: list[str]) -> Lever:
    """Return a lever that sets environment variables, given as NAME=VALUE. Raises
    Unavailable("bad-parameter")."""
    variables = tuple(LeverEnvironmentVariable(*pair) for pair in _assignments("--env", texts))
    return Lever(" ".join(texts), "other environment variables", variables=variables)


def settings_lever(texts: list[str], root: Path = Path("/")) -> Lever:
    """Return a lever that changes settings of Linux while the program runs, given as NAME=VALUE with
    names below /sys/kernel/mm. Raises Unavailable: bad-parameter, setting-refused."""
    allowed, prefix = changed_settings.names(root), "sys/kernel/mm/"
    wanted = dict[str, str]()
    for name, value in _assignments("--setting", texts):
        path = prefix + name.removeprefix("/").removeprefix(prefix)
        if path not in allowed:
            listed = ", ".join(sorted(each.removeprefix(prefix) for each in allowed))
            raise Unavailable("bad-parameter", f"--setting takes one of {listed}; not '{name}'")
        if value == changed_settings.value(path, root):
            raise Unavailable("bad-parameter", f"--setting {name}: it is '{value}' already")
        changed_settings.may_write(root, path)
        wanted[path] = value

    @contextmanager
    def changed() -> Iterator[None]:
        with changed_settings.borrowing(root, "try"):
            for path, value in wanted.items():
                changed_settings.borrow(path, value, root, "try")
            yield

    return Lever(" ".join(texts), "other settings of Linux", setting=changed)


def lever_by_name(name: str, option: str = "--lever") -> Lever:
    """Return a lever by its name. option: that gives the name. Raises Unavailable: bad-parameter, or
    what the lever's check raises."""
    if name not in LEVERS:
        raise Unavailable("bad-parameter", f"{option} is one of {', '.join(LEVERS)}, not '{name}'")
    LEVERS[name].check()
    return LEVERS[name]


def allocation_sites_lever(sites: Iterable[str]) -> Lever:
    """Return a lever that puts the allocations of these sites on huge pages, and no others. Heaps
    grow in the steps that a huge page needs, whatever is chosen. Without a compiler for the library
    that does so, all are those of glibc's malloc."""
    chosen, preload = (
        ",".join(sites),
        ALLOCATION_SITES_SOURCE_FILE
        if none_if_unavailable(build_preload_library, ALLOCATION_SITES_SOURCE_FILE)
        else None,
    )
    heaps = LEVERS["advise" if chosen and not preload else "advise-control"]
    return Lever(
        "sites",
        f"huge pages requested for {chosen or 'no allocation'}",
        variables=(
            *heaps.variables,
            LeverEnvironmentVariable("TLB_ONLY", chosen),
            LeverEnvironmentVariable(
                "NUMPY_MADVISE_HUGEPAGE", "0"
            ),  # else NumPy advises its arrays itself
        ),
        preload=preload,
    )
