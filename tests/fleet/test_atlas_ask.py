"""Each named question against a second loop over the ledger's JSON, on machines whose truth is
known."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.atlas import FAR, VERDICTS, chase, host, of, put
from support.page_sizes import Paged

from experiments.overview import profile
from experiments.overview.machine_verdicts import MachineVerdicts
from tlb.fleet import atlas
from tlb.fleet.ask import QUESTIONS, ask, opened
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.store import Store
from tlb.stats.intervals import median_interval
from tlb.stats.scatter import outliers

LEAST_KIND = 5  # machines of a kind, for one of them to be far from the others


@pytest.fixture
def connection(whole) -> Iterator[Any]:
    with opened(whole) as connection:
        yield connection


def answered(connection: Any, question: str) -> list[dict[str, Any]]:
    answer = ask(connection, QUESTIONS[question][1])
    return [dict(zip(answer.columns, row, strict=True)) for row in answer]


def rows(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    store = Store(data)
    for name in store.machines():
        for record in store.records(name).values():
            yield name, record.model_dump(mode="json")


def machine(data: Path, name: str) -> dict[str, Any]:
    path = data / name / "machine.json"
    return json.loads(path.read_bytes()) if path.is_file() else {}


def slug(data: Path, name: str) -> str:
    return machine(data, name).get("microarchitecture", "unknown").lower().replace(" ", "-")


def profiles(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(data.glob("*/translation.json")):
        for quantity in json.loads(path.read_bytes())["quantities"]:
            yield path.parent.name, quantity


def agrees(found: list[dict], expected: dict[tuple, list[float]], *by: str, unit: str = "") -> None:
    """Compare medians with their exact intervals, by group."""
    groups = [tuple(row[name] for name in by) for row in found]
    assert len(found) == len(expected) > 0 and {*groups} == {*expected}
    for row, group in zip(found, groups, strict=True):
        interval = median_interval(expected[group])
        assert row["n"] == len(expected[group])
        shown = [row[f"{name}{unit}"] for name in ("median", "low", "high")]
        assert shown == pytest.approx(interval.value_and_bounds)
        assert row["coverage"] == pytest.approx(interval.coverage)


def test_the_reach_of_a_microarchitecture(data, connection):
    expected = defaultdict(list)
    for name, quantity in profiles(data):
        if quantity["name"].startswith("entries_level") and quantity["value"] is not None:
            reach = quantity["value"] * machine(data, name)["base_page_bytes"]
            expected[slug(data, name), quantity["name"]].append(reach)
    found = answered(connection, "reach")
    agrees(found, expected, "microarchitecture", "entries_of", unit="_bytes")
    assert max(map(len, expected.values())) == 7


def far(data: Path) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Return the records of chases over 2 GiB by machine, state and page size."""
    chases = defaultdict(list)
    for name, record in rows(data):
        is_far = record["layout"] == "spread" and record["lines"] == FAR
        if record["kernel"] == "page_chase" and is_far:
            chases[name, record["state"], record["pages"]].append(record)
    return chases


def test_the_gain_of_large_pages(data, connection):
    chases, expected, noisy = far(data), defaultdict(list), Counter()
    for name, pages in {(name, pages) for name, _, pages in chases if pages != "4k"}:
        states = [state for of, state, on in chases if (of, on) == (name, pages)]
        last = max(states, key=lambda state: chases[name, state, pages][-1]["started_at"])
        sides = [chases[name, last, each] for each in ("4k", pages)]
        base, large = ([record["ns_per_access"] for record in side] for side in sides)
        of, stated = slug(data, name), machine(data, name)
        kind = (of, stated["cpu_model"], stated["hypervisor"], 1, pages)
        expected[kind].append(float(np.median(base) / np.median(large)))
        noisy[kind] += sum(record["noisy"] != "" for side in sides for record in side)
    assert profile.FAR_BYTES == FAR * 4096
    found = answered(connection, "gain")
    agrees(found, expected, "microarchitecture", "cpu_model", "hypervisor", "measures", "pages")
    assert {tuple(row.values())[:5]: row["noisy"] for row in found} == noisy
    assert sum(noisy.values()) > 0
    base, large = (chase(pages)[0] for pages in ("4k", "thp"))
    walks = [(30 + n) * (3 if n == 5 else 1) for n in range(6)]
    truths = [Paged(walk_ns=ns).time_ns(base) / Paged(walk_ns=ns).time_ns(large) for ns in walks]
    medians = [row["median"] for row in found if row["pages"] == "thp"]
    assert medians == pytest.approx([np.median(truths)], rel=0.05)


def test_machines_whose_host_splinters(connection):
    (found,) = answered(connection, "splintered")
    assert (found["machine"], found["hypervisor"]) == ("zen-4-000000ee", "vmware")
    assert (found["of_hypervisor"], found["splintered_of_hypervisor"]) == (1, 1)
    whole = ask(connection, "SELECT machine FROM machines WHERE host_pages = 'not splintered'")
    assert [*whole] == [("ice-lake-server-000000aa",)]


def test_the_effect_of_another_linux_on_a_walk(data, connection):
    name, chases, times = "zen-5-000000ab", far(data), {}
    for path in (data / name).glob("machine*.json"):
        host = Host.model_validate_json(path.read_bytes())
        records = chases[name, hosts.state(host), "4k"]
        times[host.kernel_release] = np.median([record["ns_per_access"] for record in records])
    found = answered(connection, "drift")
    expected = {("zen-5", "6.1.0", "6.9.0"): [times["6.9.0"] / times["6.1.0"]]}
    agrees(found, expected, "microarchitecture", "from", "to")
    assert found[0]["median"] == pytest.approx(1.45, rel=0.1) and found[0]["processes"] == 10


def test_machines_that_stand_out_from_their_kind(data, connection):
    kinds, expected = defaultdict(dict), set()
    for name, quantity in profiles(data):
        if quantity["value"] is not None:
            kind = slug(data, name), machine(data, name)["hypervisor"], quantity["name"]
            kinds[kind][name] = quantity["value"]
    for (_, _, quantity), values in kinds.items():
        if len(values) >= LEAST_KIND:
            is_far = dict(zip(values, outliers([*values.values()]), strict=True))
            expected |= {(name, quantity) for name in values if is_far[name]}
    found = answered(connection, "differ")
    assert {(row["machine"], row["name"]) for row in found} == expected
    assert expected == {("zen-5-00000005", "walk_over_2_gib")}
    assert found[0]["times"] == pytest.approx(315 / 102.5) and found[0]["n"] == 6


def test_disturbances_by_hypervisor_and_kernel(data, connection):
    every, disturbed = Counter(), Counter()
    for name, record in rows(data):
        kind = machine(data, name).get("hypervisor"), record["kernel"]
        every[kind] += 1
        if record["noisy"]:
            disturbed[*kind, record["noisy"]] += 1
    found = answered(connection, "noise")
    names = ("hypervisor", "kernel", "noisy")
    assert {tuple(row[name] for name in names): row["processes"] for row in found} == disturbed
    for row in found:
        whole = every[row["hypervisor"], row["kernel"]]
        assert row["share"] == pytest.approx(row["processes"] / whole)


def test_claims_on_which_machines_disagree(data, connection):
    words = Counter()
    for name in Store(data).machines():
        for claim, judged in (
            VERDICTS.get(name, MachineVerdicts()).chapters.get("tlb_blocking", {}).items()
        ):
            words[claim, judged.verdict] += 1
    found, shown = answered(connection, "claims"), Counter()
    columns = {"holds": "holds", "fails": "fails", "cannot tell": "cannot_tell"}
    for word, column in (columns | {"not testable here": "not_testable"}).items():
        shown |= Counter({(row["claim"], word): row[column] for row in found})
    assert shown == words and found[0]["claim"] == "one"


def test_machines_of_two_versions_of_a_kernel_are_in_no_number_together(tmp_path):
    """Machines of a kind, half of them measured by the next version, in which everything takes half
    as long; one has rows of both."""
    guest, kind, points = host(), 2 * LEAST_KIND, chase("4k", "2m")
    for n in range(kind):
        measures = 1 + (n >= LEAST_KIND)
        ledger = of(Paged(walk_ns=60 / measures), points, guest, seed=n, measures=measures)
        if n == kind - 1:
            ledger += of(Paged(walk_ns=60), points, guest, seed=kind, day=2)
        quantities = {"walk_over_2_gib": (60 + n % LEAST_KIND) / measures}
        verdicts = {"one": ("holds", "fails")[measures - 1]}
        put(tmp_path / f"zen-5-{n:08}", guest, ledger, quantities, verdicts, measures)
    atlas.build(tmp_path / "atlas", [tmp_path])
    with opened(tmp_path / "atlas") as connection:
        gains, claims = answered(connection, "gain"), answered(connection, "claims")
        assert answered(connection, "differ") == []
    assert [(row["measures"], row["n"]) for row in gains] == [(1, LEAST_KIND + 1), (2, LEAST_KIND)]
    assert gains[0]["median"] > 1.2 * gains[1]["median"]
    shown = {(row["measures"], row["holds"], row["fails"]) for row in claims}
    assert shown == {(1, LEAST_KIND, 0), (2, 0, LEAST_KIND)}
