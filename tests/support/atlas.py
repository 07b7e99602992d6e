"""A fleet that never was, as folders of data/: machines with a known truth,
small enough to build often."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.overview.machine_verdicts import ClaimVerdict, MachineVerdicts, RoundedEffect
from experiments.overview.profile import Profile, Quantity
from support.common import make_record
from support.page_sizes import Paged
from support.synthetic import MIB, Stated, table_bytes
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.record import Bin, Point, Record
from tlb.measure.record import Quantity as Counted
from tlb.measure.store import PUBLISHED_ROWS, write_published

VERDICTS: dict[str, MachineVerdicts] = {}  # by machine
FAR = 524_288  # lines, one to each base page of 2 GiB
SWEEP = tuple(round(2 ** (n / 2)) for n in range(8, 31))


def chase(*kinds: str, sizes: tuple[int, ...] = (FAR,)) -> list[Point]:
    return [
        Point(kernel="page_chase", pages=pages, layout=layout, lines=size, region_ms=1)
        for size in sizes
        for pages in kinds
        for layout in ("spread", "packed")
    ]


def host(
    microarchitecture: str = "Zen 5", hypervisor: str = "kvm", kernel: str = "6.1.0", **changes: Any
) -> Host:
    return Stated(
        hypervisor=hypervisor,
        changes={
            "microarchitecture": microarchitecture,
            "cpu_model": f"Imaginary {microarchitecture}",
            "kernel_release": kernel,
        }
        | changes,
    ).host()


def of(
    truth: Paged,
    points: list[Point],
    described: Host,
    repeats: int = 5,
    seed: int = 1,
    day: int = 1,
    measures: int = 1,
) -> list[Record]:
    """Rows: a machine's processes in a state. Every seventh was disturbed."""
    rows = []
    for n, row in enumerate(truth.frame(points, repeats, seed).itertuples()):
        record = make_record(
            kernel=row.kernel,
            pages=row.pages,
            layout=row.layout,
            lines=row.lines,
            region_ms=1,
            repeat=row.repeat,
            core_ghz=row.core_ghz,
            ns_per_access=row.ns_per_access,
            batch_ns_per_access=[row.ns_per_access],
            state=hosts.state(described),
            page_table_bytes=table_bytes(row.pages, 4096 * row.lines),
            noisy=("", "", "", "stolen", "", "", "uneven")[n % 7],
            measures=measures,
            started_at=f"2025-02-{day:02}T12:{n // 60 % 60:02}:{n % 60:02}Z",
        )
        rows.append(record)
    return rows


def odd_records() -> Iterator[Record]:
    """What a row may hold: everything, nothing, and the ends of each range."""
    yield make_record(
        kernel="graph_walk",
        order="random",
        mode="plain",
        options=[["vertices", 2**53], ["per_hop", 0]],
        also={"p50_ns": -1.5e308, "mean_ns": 5e-324},
        histogram=[Bin(-1.0, 1), Bin(0.1 + 0.2, 2**63 - 1)],
        steal_ms=0.0,
        measures=2,
        source="0123456789abcdef",
        compiler="cc 14",
        position=0,
        mapping_bytes=2**63 - 1,
        cpu_ns=0.5,
        fifo=1,
        page_table_bytes=0,
        seed=2**63 - 1,
        tries=100,
        noisy="spilled",
        engine="numba",
        counters={
            "walk": Counted(value=0.1, event="dtlb:u", running_percent=33.3),
            "stlb_hit": Counted(reason="no-pmu"),
            "core_cycles": Counted(reason="perf-denied", event="cycles:u"),
        },
    )
    yield make_record(
        kernel="graph_walk",
        order="random",
        mode="plain",
        lines=1,
        repeat=2**63 - 1,
        page_table_bytes=None,
        steal_ms=None,
        core_ghz=0,
        started_at="1970-01-01T00:00:00Z",
        batch_ns_per_access=[1e-300, 1.7e308, 1 / 3],
    )
    yield make_record(
        kernel="graph_walk",
        stride_pages=2**20,
        stride_bytes=2**32,
        layout="alias",
        pages="1g",
        lines=2**20,
        started_at="9999-12-31T23:59:59Z",
        counters={"walk": Counted(value=-0.0)},
    )


def put(
    folder: Path,
    described: Host | None,
    rows: list[Record],
    quantities: dict[str, float | str] | None = None,
    verdicts: dict[str, str] | None = None,
    measures: int = 1,
) -> Path:
    """Writes a machine's folder. quantities: values of a profile, or the reasons for none;
    verdicts: words by claim; measures: of the kernel that these are by."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [(record, ["stlb_cliff"]) for record in rows]
    write_published(folder / PUBLISHED_ROWS, sorted(asked, key=lambda row: row[0].kernel))
    if described:
        (folder / "machine.json").write_text(json.dumps(described.model_dump(mode="json")))
    if quantities is not None:
        each = []
        for name, value in quantities.items():
            known = {"value": value, "low": value, "high": None, "coverage": 0.9375}
            what = {"reason": value} if isinstance(value, str) else known
            each.append(Quantity(name=name, part="entries", words=name, unit="entries", **what))
        (folder / "translation.json").write_text(
            Profile(machine=folder.name, quantities=tuple(each)).model_dump_json()
        )
    if verdicts is not None:
        effect = RoundedEffect(value=1.0, low=0.9, high=None, least=None, most=2.0)
        told = {
            claim: ClaimVerdict(
                verdict=word,
                evidence="It is so.",
                effects=(effect,),
                reason="crosses" if word == "cannot tell" else "",
            )
            for claim, word in verdicts.items()
        }
        versions = {"tlb_blocking": {"page_chase": measures}}
        VERDICTS[folder.name] = MachineVerdicts({"tlb_blocking": told}, {}, versions)
    return folder


def fleet(root: Path) -> Path:
    """Six guests of a kind, of which one walks slowly; one guest under two kernels; one whose host
    splinters; a computer with whole pages and a ledger of odd rows; rows that nothing describes."""
    guest = host()
    for n in range(6):
        slow = 3.0 if n == 5 else 1.0
        put(
            root / f"zen-5-0000000{n}",
            guest,
            of(Paged(walk_ns=(30 + n) * slow), chase("4k", "2m", "thp"), guest, seed=n),
            {
                "entries_level_1": 64.0,
                "entries_level_2": 1536.0 + n,
                "walk_over_2_gib": (100.0 + n) * slow,
                "gain_2m": "pool-empty",
            },
            {"one": ("holds", "fails")[n % 2], "two": "cannot tell", "three": "not testable here"},
        )
    late = host(kernel="6.9.0")
    both = of(Paged(), chase("4k", "2m"), guest, day=1) + of(
        Paged(walk_ns=45), chase("4k", "2m"), late, day=2
    )
    under = put(root / "zen-5-000000ab", late, both, {"entries_level_2": 1600.0})
    (under / f"machine-{hosts.state(guest)}.json").write_text(
        json.dumps(guest.model_dump(mode="json"))
    )
    split = host("Zen 4", "vmware")
    put(
        root / "zen-4-000000ee",
        split,
        of(Paged(splintered=True), chase("4k", "2m", sizes=SWEEP), split, repeats=3),
    )
    whole = host(
        "Ice Lake server",
        "none",
        memory=split.memory.model_copy(update={"total_bytes": 512 * MIB}).model_dump(),
    )
    odd = [*odd_records()]
    put(
        root / "ice-lake-server-000000aa",
        whole,
        of(Paged(), chase("4k", "2m", sizes=SWEEP), whole, repeats=3) + odd,
        {},
        {"one": "holds"},
    )
    put(root / "cpu-00000000", None, of(Paged(), chase("4k"), guest, repeats=2))
    return root


LARGE_ROWS = """
SELECT 'zen-' || m % 5 || '-' || printf('%08x', m) AS machine, 'zen-' || m % 5 AS microarchitecture,
    i::VARCHAR AS key, repeat(CASE WHEN m % 10 = 0 AND hash(i) % 2 = 0 THEN 'b' ELSE 'a' END, 12)
    AS state,
    '' AS mode, ['spread', 'packed'][1 + i % 2] AS layout,
    ['4k', '2m', 'thp', '64k'][1 + i // 2 % 4] AS pages,
    CASE WHEN random() < 0.1 THEN 'random' ELSE 'cycle' END AS "order",
    1 << (6 + i // 8 % 14) AS lines,
    4096 * lines AS working_set_bytes, 1 AS stride_pages, exp(3 + 2 * random()) AS ns_per_access,
    1 AS measures, 'c' AS engine, i % 5 AS repeat,
    CASE WHEN state[1] = 'b' THEN '2025-03-01T00:00:00Z' ELSE '2025-02-01T00:00:00Z' END AS
    started_at,
    CASE WHEN random() < 0.02 THEN 'stolen' ELSE '' END AS noisy, random() * 1e9 AS wall_ns
FROM (SELECT range AS i, range // {each} AS m FROM range({first} * {each}, {last} * {each}))
"""
LARGE_MACHINES = """
SELECT 'zen-' || m % 5 || '-' || printf('%08x', m) AS machine, 'zen-' || m % 5 AS microarchitecture,
    repeat(s, 12) AS state, s = 'b' OR m % 10 > 0 AS is_latest, 'Zen ' || m % 5 AS cpu_model,
    ['kvm', 'none'][1 + m % 2] AS hypervisor, '6.' || s AS kernel_release, 4096 AS base_page_bytes,
    CASE WHEN s = 'b' THEN '2025-03-01T00:00:00Z' ELSE '2025-02-01T00:00:00Z' END AS measured_until,
    CASE WHEN m % 3 = 0 THEN 'splintered by the host' ELSE 'not splintered' END AS host_pages
FROM (SELECT range AS m FROM range({machines})), (VALUES ('a'), ('b')) v(s) WHERE s = 'a' OR m %
10 = 0
"""
LARGE_PROFILE = """
SELECT machine, microarchitecture, name, 'entries' AS part, 90 + 20 * random() AS value FROM
machines,
    (VALUES ('entries_level_1'), ('entries_level_2'), ('walk_over_2_gib')) v(name) WHERE is_latest
"""
LARGE_VERDICTS = """
SELECT machine, microarchitecture, 'tlb_blocking' AS chapter, 'claim ' || n AS claim, 1 AS measures,
    CASE WHEN random() < 0.1 THEN 'fails' ELSE 'holds' END AS verdict
FROM machines, (SELECT range AS n FROM range(20)) WHERE is_latest
"""


def large(root: Path, rows: int, machine_rows: int = 10_000) -> Path:
    """An atlas of so many rows, as a fleet has them: 10,000 a machine, of three kernels, a few of
    them the chase over 2 GiB; of 50 rows one was disturbed, and every tenth machine was measured
    under two Linux kernels."""
    import duckdb
    import pyarrow as pa

    from tlb.fleet import atlas

    machines, together, each = max(rows // machine_rows, 1), 100, machine_rows // 3
    root.mkdir(parents=True)
    with duckdb.connect() as made:
        for first in range(0, machines, together):
            last = min(first + together, machines)
            for kernel in ("page_chase", "page_gather", "graph_walk"):
                table = made.sql(
                    LARGE_ROWS.format(each=each, first=first, last=last)
                ).to_arrow_table()
                atlas.put(root, f"kernel={kernel}", [table])
        made.execute(f"CREATE TABLE machines AS {LARGE_MACHINES.format(machines=machines)}")
        tables = {"machines": "FROM machines", "profile": LARGE_PROFILE, "verdicts": LARGE_VERDICTS}
        for name, sql in tables.items():
            rows = made.sql(sql).to_arrow_table().to_pylist()
            atlas.put(root, name, [pa.Table.from_pylist(rows, schema=atlas.SCHEMAS[name])])
    return root
