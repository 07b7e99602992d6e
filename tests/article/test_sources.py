"""What a page says of the sources that measured its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.common import make_record

from experiments.article import sources
from experiments.lab import build, columns

OLD, OTHER = "0" * 16, "1" * 16
FILES = {"page_chase.c": '#include "chase.h"\n', "first_touch.c": '#include "chase.h"\n', "chase.h": "int shared;\n"}


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(build, "KERNELS", tmp_path)


def told(*rows: dict, digest: str = "f" * 16) -> dict[str, str]:
    return sources.measured_by(columns.frame([make_record(**row) for row in rows], [digest] * len(rows)))


def test_a_kernel_s_files_say_its_source_and_whether_it_is_the_one_that_is_there():
    now = build.source_digest("page_chase", "c")
    assert told({"source": now}) == dict.fromkeys(("kernels/page_chase.c", "kernels/chase.h"), f"Measured by source `{now}`.")
    assert told({"source": OLD})["kernels/chase.h"] == f"Measured by an earlier source (`{OLD}`)."
    assert told({"schema_version": 1}, digest=OLD)["kernels/chase.h"] == f"Measured by an earlier source (`{OLD}`)."  # of all that it was
    (build.KERNELS / "chase.h").write_text("int other;\n")
    assert told({"source": now})["kernels/page_chase.c"] == f"Measured by an earlier source (`{now}`)."


def test_a_file_of_several_kernels_says_of_which_it_speaks_and_several_sources_are_all_named():
    lines = told({"source": OLD}, {"source": OTHER}, {"source": OLD}, {"kernel": "first_touch", "source": OTHER})
    assert lines["kernels/first_touch.c"] == f"Measured by an earlier source (`{OTHER}`)."
    assert lines["kernels/page_chase.c"] == f"Measured by earlier sources (`{OLD}`, `{OTHER}`)."
    assert "`first_touch`" in lines["kernels/chase.h"] and "`page_chase`" in lines["kernels/chase.h"]


def test_what_has_no_rows_and_no_file_says_nothing():
    assert told() == {} and told({"engine": "numba", "source": OLD}) == {} and told({"kernel": "gone", "source": OLD}) == {}
