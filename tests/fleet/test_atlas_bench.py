"""The bench of atlases: its bundles are ones that are taken, and its plan is in proportion to what was measured."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")  # `make fleet` has it
from support import bundles  # noqa: E402
from support.common import ROOT  # noqa: E402

from experiments.fleet import atlas_bench, atlas_made, bundle  # noqa: E402
from experiments.fleet.atlas_bench import FLEET, Asked, Built, Large, planned  # noqa: E402

BUILT = Built(bundles=FLEET, packed_bytes=5 * 10**12, unpacked_bytes=4 * 10**13, rows=3 * 10**9, seconds=3600 * 70, processes=2,
              parts=9, row_part_bytes=6 * 10**11, input_bytes=11 * 10**6, more_s=1.0, more_parts=2)
QUESTIONS = {"gain": Asked(1, 1.0, 16.0, 3 << 20, 13 * 10**9), "noise": Asked(2, 2.0, 10.0, 4 << 20, 2 * 10**9),
             "reach": Asked(3, 30.0, 1.0, 5 << 20, 19 * 10**6)}
LARGE = Large(rows=3 * 10**9, machines=FLEET, parts=9, bytes=6 * 10**11, seconds=1.0, asked=QUESTIONS)


def last_column(built: Built, large: Large) -> list[float]:
    """The plan's numbers, but for cells without any."""
    cells = planned(built, large, "zen-5-00000001").iloc[:, -1]
    return [float(found[0].replace(",", "")) for cell in cells if (found := re.search(r"[\d,.]+", cell))]


def test_a_bundle_that_was_made_is_taken(tmp_path: Path):
    (model := tmp_path / "model").mkdir()
    for name, content in bundles.files().items():
        (model / name).write_bytes(content)
    for number in range(4):
        atlas_made.made(tmp_path, model, number)
    taken = [bundle.checked(path) for path in sorted(tmp_path.glob(f"*{bundle.SUFFIX}"))]
    assert len({one.machine for one in taken}) == 4 and bundles.MACHINE not in {one.machine for one in taken}
    for one in taken:
        assert [record.point for record in one.records()] == [row.point for row in bundles.ROWS]
        slower = [record.ns_per_access / row.ns_per_access for record, row in zip(one.records(), bundles.ROWS, strict=True)]
        assert min(slower) >= 1 and max(slower) < 3 and len({*slower}) == len(slower)


def test_a_fleet_of_as_many_machines_takes_what_was_measured():
    assert last_column(BUILT, LARGE)[:4] == [5_000, 3.0, 140, 1.4]  # GB of bundles, 10^9 rows, core hours, those of a thousand machines
    gigabytes, parts, inputs, slowest, read, read_beside = last_column(BUILT, LARGE)[4:]
    assert (gigabytes, inputs, read, read_beside) == (600, 11, 13, 19)
    assert slowest == 17  # of the questions about rows, which grow with the rows
    assert 3 * 10**9 / 65_536 < parts < 2 * 3 * 10**9 / 65_536


def test_a_tenth_of_the_rows_takes_ten_times_as_much_in_a_fleet():
    tenth = LARGE._replace(rows=LARGE.rows // 10, machines=LARGE.machines // 10)
    assert [more / whole for more, whole in zip(last_column(BUILT, tenth)[-3:], last_column(BUILT, LARGE)[-3:], strict=True)] == [10.0] * 3


def test_the_page_shows_a_table_that_this_version_wrote():
    kept = list(csv.reader((ROOT / "data" / "atlas.csv").open(encoding="ascii")))
    made = planned(BUILT, LARGE, "zen-5-00000001")
    assert kept[0] == [*made.columns] and len(kept) == len(made) + 1
    assert all(len(above) == len(below) for above, below in pairwise(kept))


@pytest.mark.endurance
def test_the_bench_asks_every_question_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(atlas_bench, "TABLE", tmp_path / "atlas.csv")
    told = [part for part in atlas_bench.bench(tmp_path / "bench", rows=700_000, bundles=3, is_kept=True) if not isinstance(part, str)]
    answered = dict(zip(told[1]["question"], told[1]["rows"], strict=True))
    assert [*answered] == [*atlas_bench.QUESTIONS] and {name for name in answered if answered[name] == "0"} <= {"differ"}  # of few machines
    assert (tmp_path / "atlas.csv").read_text().count("\n") == len(told[2]) + 1
    assert [path.name for path in tmp_path.iterdir()] == ["atlas.csv"]
