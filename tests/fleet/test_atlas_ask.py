"""Each question with a name against a second loop over the ledger's JSON, on machines whose truth
is known; and what nobody may ask."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

duckdb = pytest.importorskip("duckdb")  # `make fleet` has it
from support.atlas import FAR, chase, host, of, put  # noqa: E402
from support.common import ROOT  # noqa: E402
from support.page_sizes import Paged  # noqa: E402

from experiments.overview import profile  # noqa: E402
from tlb.fleet import atlas  # noqa: E402
from tlb.fleet.ask import QUESTIONS, ask, opened  # noqa: E402
from tlb.inference.intervals import median_interval  # noqa: E402
from tlb.inference.scatter import outliers  # noqa: E402
from tlb.machine import host as hosts  # noqa: E402
from tlb.machine.host import Host  # noqa: E402

LEAST_KIND = 5  # machines of a kind, for one of them to be far from the others


@pytest.fixture
def connection(whole: Path) -> Iterator[Any]:
    with opened(whole) as connection:
        yield connection


def answered(connection: Any, question: str) -> list[dict[str, Any]]:
    answer = ask(connection, QUESTIONS[question][1])
    return [dict(zip(answer.columns, row, strict=True)) for row in answer]


def rows(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(data.glob("*/*.jsonl")):
        for line in path.read_bytes().splitlines():
            yield path.parent.name, json.loads(line)["record"]


def machine(data: Path, name: str) -> dict[str, Any]:
    path = data / name / "machine.json"
    return json.loads(path.read_bytes()) if path.is_file() else {}


def slug(data: Path, name: str) -> str:
    return machine(data, name).get("microarchitecture", "unknown").lower().replace(" ", "-")


def profiles(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(data.glob("*/translation.json")):
        for quantity in json.loads(path.read_bytes())["quantities"]:
            yield path.parent.name, quantity


def agrees(
    found: list[dict[str, Any]],
    expected: dict[tuple[Any, ...], list[float]],
    *by: str,
    unit: str = "",
) -> None:
    """Medians with their exact intervals, by group."""
    assert {tuple(row[name] for name in by) for row in found} == set(expected) and len(
        found
    ) == len(expected) > 0
    for row in found:
        values = expected[tuple(row[name] for name in by)]
        interval = median_interval(values)
        assert row["n"] == len(values)
        assert [row[f"{name}{unit}"] for name in ("median", "low", "high")] == pytest.approx(
            interval[:3]
        )
        assert row["coverage"] == pytest.approx(interval[3])


def test_the_reach_of_a_microarchitecture(data: Path, connection: Any):
    expected = defaultdict(list)
    for name, quantity in profiles(data):
        if quantity["name"].startswith("entries_level") and quantity["value"] is not None:
            expected[slug(data, name), quantity["name"]].append(
                quantity["value"] * machine(data, name)["base_page_bytes"]
            )
    agrees(
        answered(connection, "reach"), expected, "microarchitecture", "entries_of", unit="_bytes"
    )
    assert max(map(len, expected.values())) == 7


def far(data: Path) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    chases = defaultdict(list)
    for name, record in rows(data):
        if (
            record["kernel"] == "page_chase"
            and record["layout"] == "spread"
            and record["lines"] == FAR
        ):
            chases[name, record["state"], record["pages"]].append(record)
    return chases


def test_the_gain_of_large_pages(data: Path, connection: Any):
    chases, expected, noisy = far(data), defaultdict(list), Counter()
    for name in {name for name, _, _ in chases}:
        for pages in ("2m", "thp"):
            states = [state for of, state, on in chases if (of, on) == (name, pages)]
            if states:
                last = max(states, key=lambda state: chases[name, state, pages][-1]["started_at"])
                sides = [chases[name, last, each] for each in ("4k", pages)]
                base, large = ([record["ns_per_access"] for record in side] for side in sides)
                kind = (
                    slug(data, name),
                    machine(data, name)["cpu_model"],
                    machine(data, name)["hypervisor"],
                    1,
                    pages,
                )
                expected[kind].append(float(np.median(base) / np.median(large)))
                noisy[kind] += sum(record["noisy"] != "" for side in sides for record in side)
    assert profile.FAR_BYTES == FAR * 4096
    found = answered(connection, "gain")
    agrees(found, expected, "microarchitecture", "cpu_model", "hypervisor", "measures", "pages")
    assert {tuple(row.values())[:5]: row["noisy"] for row in found} == noisy and sum(
        noisy.values()
    ) > 0
    base, large = (
        next(point for point in chase(pages) if point.layout == "spread") for pages in ("4k", "thp")
    )
    truths = [
        truth.time_ns(base) / truth.time_ns(large)
        for n in range(6)
        for truth in [Paged(walk_ns=(30 + n) * (3 if n == 5 else 1))]
    ]
    assert [row["median"] for row in found if row["pages"] == "thp"] == pytest.approx(
        [np.median(truths)], rel=0.05
    )


def test_machines_whose_host_splinters(connection: Any):
    (found,) = answered(connection, "splintered")
    assert (
        found["machine"],
        found["hypervisor"],
        found["of_hypervisor"],
        found["splintered_of_hypervisor"],
    ) == ("zen-4-000000ee", "vmware", 1, 1)
    told = ask(connection, "SELECT machine FROM machines WHERE host_pages = 'not splintered'")
    assert [*told] == [("ice-lake-server-000000aa",)]


def test_what_another_kernel_made_of_a_walk(data: Path, connection: Any):
    chases = far(data)
    described = [
        Host.model_validate_json(path.read_bytes())
        for path in (data / "zen-5-000000ab").glob("machine*.json")
    ]
    times = {
        host.kernel_release: np.median(
            [
                record["ns_per_access"]
                for record in chases["zen-5-000000ab", hosts.state(host), "4k"]
            ]
        )
        for host in described
    }
    found = answered(connection, "drift")
    agrees(
        found,
        {("zen-5", "6.1.0", "6.9.0"): [times["6.9.0"] / times["6.1.0"]]},
        "microarchitecture",
        "from",
        "to",
    )
    assert found[0]["median"] == pytest.approx(1.45, rel=0.1) and found[0]["processes"] == 10


def test_machines_that_stand_out_from_their_kind(data: Path, connection: Any):
    kinds = defaultdict(dict)
    for name, quantity in profiles(data):
        if quantity["value"] is not None:
            kinds[slug(data, name), machine(data, name)["hypervisor"], quantity["name"]][name] = (
                quantity["value"]
            )
    expected = {
        (name, kind[2])
        for kind, values in kinds.items()
        if len(values) >= LEAST_KIND
        for name, far in zip(values, outliers([*values.values()]), strict=True)
        if far
    }
    found = answered(connection, "differ")
    assert (
        {(row["machine"], row["name"]) for row in found}
        == expected
        == {("zen-5-00000005", "walk_over_2_gib")}
    )
    assert found[0]["times"] == pytest.approx(315 / 102.5) and found[0]["n"] == 6


def test_what_disturbed_processes(data: Path, connection: Any):
    every, disturbed = Counter(), Counter()
    for name, record in rows(data):
        kind = machine(data, name).get("hypervisor"), record["kernel"]
        every[kind] += 1
        disturbed[*kind, record["noisy"]] += 1
    found = answered(connection, "noise")
    assert {
        (row["hypervisor"], row["kernel"], row["noisy"]): row["processes"] for row in found
    } == {kind: number for kind, number in disturbed.items() if kind[2]}
    assert all(
        row["share"] == pytest.approx(row["processes"] / every[row["hypervisor"], row["kernel"]])
        for row in found
    )


def test_claims_on_which_machines_disagree(data: Path, connection: Any):
    words = Counter(
        (claim, judged["verdict"])
        for path in data.glob("*/verdicts.json")
        for claim, judged in json.loads(path.read_bytes())["chapters"]["strides"].items()
    )
    found = answered(connection, "claims")
    columns = {
        "holds": "holds",
        "fails": "fails",
        "cannot tell": "cannot_tell",
        "not testable here": "not_testable",
    }
    assert {
        (row["claim"], word): row[column]
        for row in found
        for word, column in columns.items()
        if row[column]
    } == words
    assert found[0]["claim"] == "one"


def test_machines_that_were_measured_by_two_versions_of_a_kernel_are_in_no_number_together(
    tmp_path: Path,
):
    """Machines of a kind, half of them measured by the next version, in which everything takes half
    as long; one has rows of both."""
    guest, kind = host(), 2 * LEAST_KIND
    for n in range(kind):
        measures = 1 + (n >= LEAST_KIND)
        ledger = of(
            Paged(walk_ns=60 / measures), chase("4k", "2m"), guest, seed=n, measures=measures
        )
        ledger += (
            of(Paged(walk_ns=60), chase("4k", "2m"), guest, seed=kind, day=2)
            if n == kind - 1
            else []
        )
        put(
            tmp_path / f"zen-5-{n:08}",
            guest,
            ledger,
            {"walk_over_2_gib": (60 + n % LEAST_KIND) / measures},
            {"one": ("holds", "fails")[measures - 1]},
            measures,
        )
    atlas.build(tmp_path / "atlas", [tmp_path])
    with opened(tmp_path / "atlas") as connection:
        gains, claims = answered(connection, "gain"), answered(connection, "claims")
        assert answered(connection, "differ") == []
    assert {row["measures"]: row["n"] for row in gains} == {
        1: LEAST_KIND + 1,
        2: LEAST_KIND,
    } and len(gains) == 2
    assert gains[0]["median"] > 1.2 * gains[1]["median"]
    assert {(row["measures"], row["holds"], row["fails"]) for row in claims} == {
        (1, LEAST_KIND, 0),
        (2, 0, LEAST_KIND),
    }


def test_a_median_s_interval_is_the_book_s(connection: Any):
    rng = np.random.default_rng(1)
    for n in [*range(1, 40), 100, 331, 1000]:
        values = rng.permutation(np.round(rng.lognormal(size=n), 2)).tolist()
        (found,) = [*ask(connection, f"SELECT median_interval({values}::DOUBLE[])")]
        interval = median_interval(values)
        assert found[0] == pytest.approx(
            {"n": n, **dict(zip(("median", "low", "high", "coverage"), interval, strict=False))}
        )
    assert [*ask(connection, "SELECT median_interval([]::DOUBLE[])")] == [(None,)]


@pytest.mark.endurance
def test_gains_of_published_machines_are_those_of_their_profiles(tmp_path: Path):
    atlas.build(tmp_path / "atlas", [ROOT / "data"])
    with opened(tmp_path / "atlas") as connection:
        found = {
            (row["microarchitecture"], f"gain_{row['pages']}"): row["median"]
            for row in answered(connection, "gain")
        }
    known = {
        (name.rpartition("-")[0], quantity["name"]): quantity["value"]
        for name, quantity in profiles(ROOT / "data")
        if quantity["name"] in ("gain_2m", "gain_thp") and quantity["value"]
    }
    assert found == pytest.approx(known, rel=1e-5) and known
