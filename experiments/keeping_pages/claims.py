"""What the articles say of getting, proving and wasting huge pages, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from experiments.keeping_pages.analysis import Analysis
from experiments.keeping_pages.documents import RuntimeReport, RuntimesDocument
from tlb.measure.toolchains import TOOLCHAINS
from tlb.report.claims import Answer, Band, Fact, claim, count_inside_band, points_where
from tlb.stats.curves import select_rows
from tlb.stats.effects import effect_inside_band
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE_PAGES, page_words
from tlb.system.reasons import Unavailable, Undecided, require_nonempty
from tlb.system.units import format_size

# --- faulting in


_TOUCHED = points_where("prefault", mode="touch", pages=(BASE_PAGES, "thp"))


@claim("pretouch-six-times-as-fast", points=_TOUCHED)
@claim("thp-faults-six-times", points=_TOUCHED)
def thp_faults_are_faster(a: Analysis, band: Band) -> Answer:
    rates = {
        pages: select_rows(a.faults, mode="touch", pages=pages).set_index("threads")
        for pages in (BASE_PAGES, "thp")
    }
    shared = set.intersection(*(set(rows.index) for rows in rates.values()))
    threads = max(
        require_nonempty(shared, "faulting in was not measured on both by as many threads")
    )
    slow, fast = (Interval.of(rows.loc[threads]) for rows in rates.values())
    by = "one thread" if threads == 1 else f"{threads} threads"
    return effect_inside_band(slow / fast, *band, what=f"by {by}"), (
        f"Touched by {by}, base pages are ready at "
        f"{rates[BASE_PAGES].loc[threads, 'gb_per_s']:.2g} GB/s and THP at "
        f"{rates['thp'].loc[threads, 'gb_per_s']:.2g}, {slow / fast:rounded} times as fast."
    )


@claim(
    "freeing-faster-with-thp",
    points=points_where("prefault", mode="touch", threads=1, pages=(BASE_PAGES, "thp")),
)
def thp_is_freed_faster(a: Analysis, band: Band) -> Answer:
    base, thp = (a.freed_ns(pages) for pages in (BASE_PAGES, "thp"))
    return effect_inside_band(base / thp, *band), (
        f"For each {format_size(a.base_page_bytes)}, munmap takes {base:median} ns on base "
        f"pages and {thp:median} ns on THP: {base / thp:rounded} times as long on base pages."
    )


@claim(
    "smaller-page-tables", points=points_where("prefault", mode="touch", pages=(BASE_PAGES, "2m"))
)
def page_tables_are_smaller(a: Analysis) -> Answer:
    """On pages of a pool: a transparent one keeps a table in reserve, to be split into."""
    touched = {
        pages: require_nonempty(
            select_rows(a.frame, kernel="prefault", mode="touch", threads=1, pages=pages),
            f"nothing was touched on {page_words(pages)}",
            code,
        )
        for pages, code in ((BASE_PAGES, "engine-lacks"), ("2m", "pool-empty"))
    }
    size = touched[BASE_PAGES]["working_set_bytes"].max()
    base, large = (int(rows["page_table_bytes"].median()) for rows in touched.values())
    return Fact(
        large < base,
        f"The page tables of a process that has touched {format_size(int(size))} take "
        f"{format_size(base)} on base pages and {format_size(large)} on {page_words('2m')}.",
        base / large,
    )


@claim("small-object-takes-a-large-page", points=None, pages="thp")
def one_byte_takes_a_large_page(a: Analysis, band: Band, pages: str) -> Answer:
    """What one byte written makes resident on these pages."""
    rows = require_nonempty(
        select_rows(a.faults, pages=pages),
        f"nothing was faulted in on {page_words(pages)}",
        "pool-empty" if pages == "1g" else "too-few-points",
    )
    resident = rows["one_byte_bytes"].iloc[0]
    evidence = (
        f"One byte written on {page_words(pages)} makes {format_size(int(resident))} resident."
    )
    return count_inside_band(resident, band, evidence)


claim("gigabyte-granularity", points=None, pages="1g")(one_byte_takes_a_large_page)


# --- what each way of asking got


@claim("hundred-kib-wastes-1.9-mb", points=None)
def an_arena_wastes_the_rest(a: Analysis, band: Band) -> Answer:
    got = a.ways.of("arena")
    wasted = got.resident_bytes - got.array_bytes
    return count_inside_band(
        wasted,
        band,
        f"A program advised {format_size(got.mapped_bytes)} and wrote {format_size(got.array_bytes)}. "
        f"{format_size(got.resident_bytes)} are resident, {wasted:,} bytes more than it wrote.",
    )


@claim("madvise-drops-2-mib", points=None)
def giving_back_drops_a_large_page(a: Analysis, band: Band) -> Answer:
    got, whole = a.ways.of("dropped"), a.ways.of("advised")
    freed = got.mapped_bytes - got.resident_bytes
    split = (whole.huge_bytes - got.huge_bytes) // (2 << 20)
    return count_inside_band(
        freed,
        band,
        f"After MADV_DONTNEED of one base page smaps shows {format_size(freed)} less resident, "
        f"and the kernel maps {split} of the huge pages by base pages.",
    )


@claim("two-mib-needs-setup", points=None)
def a_plain_mapping_has_none(a: Analysis, band: Band) -> Answer:
    got = a.ways.of("anonymous")
    return count_inside_band(
        got.huge_share,
        band,
        f"A mapping that asks for nothing has {got.huge_share:.0%} of its memory on huge pages, with "
        f"the kernel's setting at `{a.ways.thp}`.",
    )


@claim("madvise-chooses-where", points=None)
def advice_chooses_where(a: Analysis, band: Band) -> Answer:
    got = a.ways.of("half")
    share, elsewhere = got.huge_share, got.rest_huge_bytes
    return Fact(
        band[0] <= share <= band[1] and not elsewhere,
        f"Of the advised half, {share:.0%} is on huge pages; of the rest of the process, "
        f"{format_size(elsewhere)} is.",
        share,
    )


@claim("file-maps-inherit-large-pages", points=None)
def a_mapped_file_has_large_pages(a: Analysis, band: Band) -> Answer:
    got = {
        way: a.ways.of(way)
        for way in ("tmpfs", "tmpfs-huge", "hugetlbfs")
        if way not in a.ways.lacking
    }
    file, rest = (
        a.ways.of("file").huge_share,
        "; ".join(f"{a.ways.asked(way)}: {one.huge_share:.0%}" for way, one in got.items()),
    )
    return count_inside_band(
        file,
        band,
        f"{file:.0%} of {a.ways.asked('file', in_words=True)} is on huge pages."
        + f" Other file systems follow settings of their own ({rest})." * bool(got),
    )


# --- what runtimes ask for


def _programs_of(a: Analysis, variant: str) -> RuntimesDocument:
    """Return what the programs got. Raises Unavailable: "pool-empty" before any lack of results if
    the variant needs a pool and this machine has none."""
    try:
        return a.programs
    except Unavailable as why:
        has_pool = any(pool.total for pool in a.host.pools)
        raise why if variant != "pool" or has_pool else Unavailable("pool-empty") from None


def _reports(a: Analysis, language: str, variant: str) -> list[RuntimeReport]:
    """The runs of a program in one variant. Raises Unavailable with the reason why there is
    none."""
    programs = _programs_of(a, variant)
    lack = programs.lacking
    return require_nonempty(
        [
            report
            for report in programs.reports
            if (report.language, report.variant) == (language, variant)
        ],
        f"in the run of the {TOOLCHAINS[language].title} program",
        lack.get(f"{language} {variant}", lack.get(language, "no-data")),
    )


@claim("go-asks-for-no-large-pages", points=None)
@claim("go-maps-at-4-kib", points=None, on_base_pages=True)
def plain_go(a: Analysis, band: Band, on_base_pages: bool = False) -> Answer:
    """Judge the share of a Go program's plain array on huge pages, or on base pages; left open with
    THP at `always`, which gives them unasked. Raises Unavailable."""
    plain = _reports(a, "go", "plain")
    huge, size = max(report.huge_bytes for report in plain), plain[0].array_bytes
    evidence = (
        f"Of {format_size(size)} that a Go program allocates plainly, {format_size(huge)} is on huge "
        "pages"
    )
    if a.programs.thp == "always" and huge:
        return Undecided(
            "conditions"
        ), f"{evidence}: with THP at `always` the kernel gives them to programs that do not ask."
    share = 1 - huge / size if on_base_pages else huge / size
    return count_inside_band(share, band, f"{evidence}, with THP at `{a.programs.thp}`.")


@claim("recipes-work-in-five-languages", points=None)
def the_pool_in_five_languages(a: Analysis, band: Band) -> Answer:
    programs = _programs_of(a, "pool")
    shares = {
        report.language: report.huge_share
        for report in programs.reports
        if report.variant == "pool"
    }
    if not shares:
        lack = {name: code for name, code in programs.lacking.items() if name.endswith(" pool")}
        raise Unavailable(next(iter(lack.values()), "no-data"), "in the run of these programs")
    told = ", ".join(
        f"{TOOLCHAINS[language].title} {share:.0%}" for language, share in shares.items()
    )
    evidence = f"Share of the array that is in the pool, by smaps: {told}."
    is_whole = all(band[0] <= share <= band[1] for share in shares.values())
    if is_whole and len(shares) < len(TOOLCHAINS):
        return Undecided("conditions"), evidence
    return Fact(is_whole, evidence, min(shares.values()))


def _java_pool(a: Analysis) -> tuple[float, str]:
    share = min(report.huge_share for report in _reports(a, "java", "pool"))
    return share, f"With the flag, {share:.0%} of Java's heap is in the pool."


@claim("java-hugetlbfs-maps-the-pool", points=None)
def javas_flag_maps_the_pool(a: Analysis, band: Band) -> Answer:
    share, told = _java_pool(a)
    return count_inside_band(share, band, told)


@claim("use-large-pages-is-not-thp", points=None)
def javas_flag_is_not_thp(a: Analysis, band: Band) -> Answer:
    share, told = _java_pool(a)
    return count_inside_band(
        1 - share, band, f"{told} That leaves {1 - share:.0%} for transparent huge pages."
    )


@claim("java-thp-is-madvise", points=None)
def javas_other_flag_advises(a: Analysis, band: Band) -> Answer:
    share = min(report.huge_share for report in _reports(a, "java", "huge"))
    evidence = f"With the flag, {share:.0%} of Java's heap is on transparent huge pages."
    return count_inside_band(share, band, evidence)
