"""The blocks at the two ends of a chapter's page: earlier kernels, the machine's own words, the
parameters of the run."""

import re

import nbformat
import pandas as pd
import pytest
from support.common import About, make_record
from support.synthetic import Stated

from tlb.measure import build, row_tables
from tlb.measure.outcome import SessionCounts
from tlb.measure.record import CounterReading
from tlb.report import notebooks, publish, setting
from tlb.report.analysis import Analysis
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable


def rows(*changes: dict) -> pd.DataFrame:
    laid_out = [
        row_tables.flat_row(make_record(**change).model_dump(mode="json")) for change in changes
    ]
    return row_tables.rows_frame(pd.DataFrame(laid_out))


@pytest.mark.parametrize(
    ("kernel", "row", "says"),
    [("page_chase", {}, True), ("page_chase", {"measures": 2}, False), ("page_gather", {}, False)],
)
def test_rows_of_an_earlier_version_of_a_kernel_say_so_at_the_head_of_their_page(
    tmp_path, monkeypatch, kernel, row, says
):
    (tmp_path / "page_chase.c").write_text("/* why */\n#define MEASURES 2\n")
    (tmp_path / "page_gather.c").write_text("int main;\n")
    monkeypatch.setattr(build, "KERNELS_FOLDER", tmp_path)
    head = setting.earlier_kernels(rows({"kernel": kernel, **row}, {"kernel": "page_gather"}))
    assert (bool(head), f"`{kernel}`" in head, "page_gather" in head) == (says, says, False)


@pytest.mark.parametrize(("repeats", "says"), [((0,), False), ((0, 1), True), ((), True)])
def test_fewer_repeats_are_offered_only_where_there_are_more(repeats, says):
    frame = rows(*({"repeat": repeat} for repeat in repeats)) if repeats else pd.DataFrame()
    about = About(Stated().host())
    assert bool(setting.once(Analysis(frame, about), "curves as before")) is says


def test_a_page_shows_the_parameters_that_it_was_run_with(tmp_path):
    path = tmp_path / "hugepages.ipynb"
    notebook = nbformat.read(ROOT / "book" / "hugepages.ipynb", 4)
    injected = nbformat.v4.new_code_cell(
        "# Parameters\nminutes = 0.0\n", metadata={"tags": ["injected-parameters"]}
    )
    notebook.cells.insert(3, injected)
    nbformat.write(notebook, path)
    given = notebooks.check_parameters(
        "hugepages", {"machine": "this", "minutes": 0.0, "max_working_set": "1GiB"}
    )
    publish.show_given(path, given)
    cells = nbformat.read(path, 4).cells
    (cell,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    exec(cell.source, names := {})
    assert {name: names[name] for name in given} == given
    assert all("  # " in line for line in cell.source.splitlines())
    assert injected.source not in [other.source for other in cells]


def test_only_a_caption_over_a_machine_s_own_marks_says_that_it_is_of_the_published_figure(
    tmp_path,
):
    path = tmp_path / "flushes.ipynb"
    notebook = nbformat.read(ROOT / "book" / "flushes.ipynb", 4)
    figures = [
        c for c in notebook.cells if "caption" in c.metadata.get("mystnb", {}).get("figure", {})
    ]
    captions = [cell.metadata["mystnb"]["figure"]["caption"] for cell in figures]
    drawn = figures[0].outputs[0]["data"]
    drawn["text/html"] = drawn["text/html"].replace("µs", "us")
    figures[1].outputs[0]["data"]["text/html"] = '<div class="tlb-borrowed">'
    nbformat.write(notebook, path)
    publish.lead_captions(path, "flushes")
    cells = nbformat.read(path, 4).cells
    figures = [
        c.metadata["mystnb"]["figure"] for c in cells if "figure" in c.metadata.get("mystnb", {})
    ]
    assert figures[0]["caption"].endswith(f" {captions[0]}")
    assert [figure["caption"] for figure in figures[1:]] == captions[1:]


def test_each_reason_for_which_a_kernel_refuses_a_page_size_is_on_the_page():
    source = "".join((ROOT / "kernels" / name).read_text() for name in ("arena.h", "backing.h"))
    refusals = " ".join(re.findall(r"unavailable\(([^;]*?),", source))
    codes = set(re.findall(r'"([a-z-]+)"', refusals))
    notes = [Unavailable(code).note._replace(pages=("thp",)) for code in [*codes, "no-perf"]]
    page = setting.about_pages(notes)
    assert len(codes) > 3 and page.count("2 MiB") == len(codes) and len(page.splitlines()) == 1


@pytest.mark.parametrize("enabled", ["absent", "madvise"])
def test_settings_of_transparent_pages_are_given_only_where_linux_offers_them(enabled):
    host = Stated(changes={"thp": {"enabled": enabled, "defrag": enabled}}).host()
    text = setting.system(Analysis(rows({}), About(host)), ())
    assert ("defragmenting" in text, enabled in text) == ((enabled != "absent"),) * 2


def test_what_perf_counted_of_a_chapter_s_processes_is_in_its_settings():
    def counted(kernel: str, faults: int) -> SessionCounts:
        totals = {"page_faults": CounterReading(value=faults)}
        return SessionCounts(
            kernel=kernel, engine="c", pages="4k", sessions=2, points=4, totals=totals, most=totals
        )

    class Counted(About):
        def counted_sessions(self) -> list[SessionCounts]:
            return [counted("page_chase", 1234), counted("another", 5)]

    a = Analysis(rows({"kernel": "page_chase"}), Counted(Stated().host()))
    assert "1,234 page faults" in setting.set_up(a) and "2 processes" in setting.set_up(a)
    assert "other pages" in setting.set_up(a)  # counts are of a kernel, whatever it ran for
    assert "page faults" not in setting.set_up(Analysis(a.frame, About(Stated().host())))
