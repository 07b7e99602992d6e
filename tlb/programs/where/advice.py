"""How a program gets huge pages for memory that `tlb where` has found, without `tlb`: by a variable
of its environment, or by a change of its source. tests/programs/test_where_advice.py follows each
piece of advice in a program of its kind."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from tlb.machine import settings
from tlb.programs.executable import is_go_program
from tlb.programs.levers import LEVERS, LeverEnvironmentVariable
from tlb.programs.where.simulation import AllocationSite, source_line_of_frame
from tlb.system.reasons import explain_reason
from tlb.system.units import format_size

_GLIBC = LEVERS[
    "advise"
].variables  # without the larger steps, threads and blocks of 1 MiB get none
# What makes each allocator request huge pages. gperftools' tcmalloc has nothing of the kind.
_ALLOCATORS = {
    "glibc": _GLIBC,
    "jemalloc": (LeverEnvironmentVariable("MALLOC_CONF", "thp:always", ","),),
    "mimalloc": (LeverEnvironmentVariable("MIMALLOC_LARGE_OS_PAGES", "1"),),
}
# What makes a language's runtime do so with memory that it maps itself, by its library's name.
_RUNTIMES = {
    r"libjvm\.so": LEVERS["jvm"].variables,
    r"(lib)?python3.*": (LeverEnvironmentVariable("PYTHONMALLOC", "malloc"), *_GLIBC),
}
_CPLUSPLUS = r"lib(std)?c\+\+\.so.*"  # whose operator new calls malloc
_REPLACEABLE = "malloc", "calloc", "memalign", "aligned_alloc", "posix_memalign"


def huge_page_bytes(root: Path = Path("/")) -> int:
    """Return the size of a transparent huge page; 0 where Linux gives none."""
    thp = settings.thp(root)
    return (thp.page_bytes or 0) if thp.enabled in ("always", "madvise") else 0


def why_no_huge_pages(root: Path = Path("/")) -> str:
    """Return why Linux gives no transparent huge pages, "" if it does."""
    setting = settings.thp(root).enabled
    code = {"never": "thp-never", "absent": "linux-lacks"}.get(setting)
    return explain_reason(code, "transparent_hugepage/enabled") if code else ""


def reachable(sites: Iterable[AllocationSite], huge_bytes: int) -> list[str]:
    """Return the ids of the sites that `tlb try --only` puts on huge pages."""
    return [site.id for site in sites if _is_large(site, huge_bytes) or _has_setting(site)]


def _is_large(site: AllocationSite, huge_bytes: int) -> bool:
    """Whether an allocation holds a whole huge page wherever it begins."""
    return not site.is_heap and site.first_bytes >= 2 * huge_bytes


def _has_setting(site: AllocationSite) -> bool:
    """Whether the memory is its allocator's, and that grows by whole huge pages."""
    return site.how != "mmap" and site.allocator in _ALLOCATORS


def variables(sites: Iterable[AllocationSite]) -> tuple[LeverEnvironmentVariable, ...]:
    """Return the variables that put these sites on huge pages, those that can be."""
    found = dict[str, LeverEnvironmentVariable]()
    for site in sites:
        by_kind = _ALLOCATORS.get(site.allocator, ())
        if site.how == "mmap":
            by_kind = _RUNTIMES.get(_runtime(site), ())
        found |= {variable.name: variable for variable in by_kind}
    return tuple(found.values())


def without_setting(sites: Iterable[AllocationSite]) -> list[str]:
    """Return the allocators of these sites that have no variable which brings huge pages."""
    kinds = {site.allocator for site in sites if site.how != "mmap"}
    return sorted(kinds - set(_ALLOCATORS))


def _runtime(site: AllocationSite) -> str:
    """Return the key in _RUNTIMES of the library that a site is in, "" if none."""
    return next((name for name in _RUNTIMES if re.fullmatch(name, _module(site))), "")


def _module(site: AllocationSite) -> str:
    """Return the name of the file whose code called the allocator, without C++'s own library."""
    modules = [frame.rpartition("+")[0].rpartition("/")[2] for frame in site.stack]
    return next((name for name in modules if not re.fullmatch(_CPLUSPLUS, name)), "")


def change(site: AllocationSite, huge_bytes: int) -> str:
    """Return what to write at a site in place of what it does; "" where nothing is known to work,
    and where its source is not at hand."""
    is_own = not _runtime(site) and any(
        source_line_of_frame(frame).line for frame in site.stack[:3]
    )
    if site.is_heap or not is_own:
        return ""
    advise = "madvise(p, bytes, MADV_HUGEPAGE)"
    if site.how == "mmap":
        return advise if _is_large(site, huge_bytes) else ""
    if site.how not in _REPLACEABLE or site.first_bytes < huge_bytes:
        return ""
    size = format_size(huge_bytes)
    zeros = " and memset(p, 0, bytes)" if site.how == "calloc" else ""
    return f"p = aligned_alloc({size}, bytes rounded up to whole {size}), then {advise}{zeros}"


def commands(
    command: list[str], sites: list[AllocationSite], only: Iterable[str], huge_bytes: int
) -> Iterator[str]:
    """Yield what to run or to write next, so that these sites are on huge pages: nothing that does
    not bring them. only: what `tlb try` is to advise."""
    if not huge_bytes:
        return
    words = shlex.join(command)
    if is_go_program(command[0]):
        yield f"tlb try --lever collapse -- {words}"
        return
    if ids := ",".join(only):
        yield f"tlb try --only {ids} -- {words}"
    if chosen := variables(sites):
        assigned = [f"{each.name}={shlex.quote(each.added())}" for each in chosen]
        yield f"{' '.join(assigned)} {words}"
    for site in sites:
        if text := change(site, huge_bytes):
            yield f"in {site.origin}: {text}"
