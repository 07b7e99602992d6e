"""What the chapter about the cliff says: a sentence for every kind of machine, chosen by its data, with no hole where a number lacks."""

from __future__ import annotations

import math
import re

import pytest
from support.stlb_cliff import COUNTING, MACHINES, SIMULATED, analysis, hashed, kind, of
from support.synthetic import HOLE, MIB, Stated, Truth, frame, grid

from experiments.chapters.stlb_cliff import Analysis, prose
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
FIRST_PAGE = ("hit", "walk", "sharpness")


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def said(a: Analysis, *names: str) -> dict[str, float | str]:
    """What each function says, found fit to be glued: finite numbers, sentences without holes; of what is lacking, nothing."""
    told: dict[str, float | str] = {}
    for name in names or (*prose.__all__, *FIRST_PAGE):
        try:
            value = getattr(prose, name)(a)
        except Unavailable as why:
            assert why.code in ("no-step", "no-geometry", "one-level", "too-few-points", "no-clock"), (name, why)
            continue
        if isinstance(value, str):
            assert value and not HOLE.search(value), (name, value)
            assert not isinstance(value, Prose) or value.endswith("."), (name, value)
        else:
            assert math.isfinite(float(value)), (name, value)
        told[name] = value
    return told


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("repeats", [1, 5])
def test_every_kind_of_machine_has_its_sentences(name: str, repeats: int):
    told = said(kind(name, repeats))
    assert {"lead", "stable", "clock", "tlb", "counters", "guest_note", "set_up", "repeats", "largest", "overlap"} <= told.keys()
    if name in ("CPUID silent", "one level stated", "tiny sizes", "small sizes", "no cliff"):
        assert not {"steps", "step_shape", "hit", "walk", "sharpness"} & told.keys()
    elif name != "noise":
        assert {"steps", "control", "random", "hit", "walk", "sharpness"} <= told.keys()


def test_on_the_textbooks_machine_the_numbers_are_its_own():
    told = said(of(Truth(noise=0.001)))
    first, step, hit, cycles, second, half = numbers(told["steps"])[:6]
    walk = numbers(told["steps"].split("translation costs")[1])[0]
    assert (first, step) == (pytest.approx(64, rel=0.1), 64) and second == pytest.approx(1536, rel=0.1) and half == 1536
    assert (hit, cycles, walk) == pytest.approx((2, 2 * 3.2, 11), rel=0.03)
    assert numbers(told["clock"]) == pytest.approx([3.2, 3.2], rel=0.02)
    assert (told["largest"], told["table_last"]) == ("4 GiB", "8 MiB")
    assert numbers(told["price_last"])[0] == 11 and numbers(told["lead"])[2:5] == pytest.approx([12, 11, 92], abs=1)
    assert (told["repeats"], told["coverage"]) == (7, pytest.approx(98.4, abs=0.1))
    assert numbers(told["overlap"])[2:4] == pytest.approx([2.4, 5], abs=0.1)
    assert numbers(told["hit"]) == pytest.approx([2, 6.4], rel=0.03)
    assert numbers(told["walk"])[0] == pytest.approx(11, rel=0.03) and "4 GiB" in told["walk"]
    assert numbers(told["sharpness"].split("From 1,536")[1])[0] == pytest.approx(4, rel=0.05)


def test_the_shape_of_the_step_is_laid_to_the_kind_that_fits_best():
    shapes = [said(of(truth), "step_shape")["step_shape"] for truth in (Truth(), Truth(missed=hashed))]
    assert [[kind for kind, words in prose._SHAPES.items() if words in shape] for shape in shapes] == [
        ["fully associative, LRU"], ["hashed sets, random replacement"]]


def test_a_sweep_without_twice_the_entries_has_a_place_and_no_rise():
    """The second tread of a coarse grid may begin past twice the entries."""
    rows = frame(Truth())
    told = [said(analysis(part), "sharpness")["sharpness"] for part in (rows[rows["lines"] != 3072], rows)]
    assert ["a load slows by" in text for text in told] == [False, True]


def test_noise_marks_points_unstable_and_quiet_does_not():
    quiet, noisy = (said(of(Truth(noise=noise)), "stable")["stable"] for noise in (0.001, 0.3))
    unstable, points, *_ = numbers(noisy)
    assert unstable > 0.9 * points and numbers(quiet) == [5]


def test_the_control_clears_the_data_or_does_not():
    openings = [said(of(truth), "control")["control"].split(".")[0]
                for truth in (Truth(), Truth(cache_step=(1537, 5.0)), Truth(cache_step=(1537, 1.0), noise=0.002))]
    assert len(set(openings)) == 3


def test_an_engine_without_a_clock_says_its_times_and_why_there_are_no_cycles():
    a = analysis(frame(Truth()).assign(core_ghz=0.0))
    told = said(a)
    assert "clock" not in told and "cycles" not in told["steps"] + told["hit"]
    with pytest.raises(Unavailable) as refused:
        prose.clock(a)
    assert refused.value.code == "no-clock"


def test_orders_and_loops_that_were_not_measured_have_a_reason():
    rows = frame(Truth())
    lacking = {"random": rows[rows["order"] != "random"], "sequential": rows[rows["order"] != "sequential"],
               "overlap": rows[rows["kernel"] != "page_gather"]}
    for name, left in lacking.items():
        with pytest.raises(Unavailable) as refused:
            getattr(prose, name)(analysis(left))
        assert refused.value.code == "too-few-points" and len(said(analysis(left), *lacking)) == 2


# --- counters


def test_what_counts_are_is_said_with_the_reason():
    rows = frame(Truth(), grid(16 * MIB)).assign(walk_per_access=float("nan"), walk_reason="no-pmu")
    told = said(analysis(rows), "counters", "counts_are")
    assert told["counts_are"] == "predicted" and str(Unavailable("no-pmu")) in told["counters"]
    walks = rows.assign(walk_per_access=1.0, walk_reason="", walk_cycles_reason="no-walk-cycle-event")
    told = said(analysis(walks, COUNTING), "counters", "counts_are")
    assert told["counts_are"] == "counted" and str(Unavailable("no-walk-cycle-event")) in told["counters"]
    both = walks.assign(walk_cycles_per_access=30.0)
    assert "inferred" not in said(analysis(both, COUNTING), "counters")["counters"]
    told = said(analysis(both, COUNTING, SIMULATED), "counters", "counts_are", "set_up")
    assert told["counts_are"] == "simulated" and "computed, not measured" in told["counters"] and "simulated: " in told["set_up"]


def test_a_size_in_bytes_is_of_the_machines_own_pages():
    large = Stated(changes={"base_page_bytes": 16384})
    told = said(analysis(frame(Truth()), large), "largest", "table_last")
    assert told == {"largest": "16 GiB", "table_last": "8 MiB"}


@pytest.mark.parametrize(("truth", "told", "times"), [
    (Truth(noise=0.001), [2.2, 2.2, 42.2], 42.2 / 11), (Truth(noise=0.001, bit_ns=0.0), [2.2, 2.2], None),
    (Truth(noise=0.001, bit_ns=0.5), [2.2, 2.2, 2.7], None)])
def test_a_store_is_told_beside_a_load_and_beside_those_that_have_bits_to_set(truth: Truth, told: list[float], times: float | None):
    """Independent accesses of the textbook's machine pay a fifth of what those of the chase do, and each a bit's price of its own."""
    _, *ns = numbers(prose.stores_said(of(truth)))
    assert ns[:len(told)] == pytest.approx(told, abs=0.51) and len(ns) == len(told) + (times is not None)
    assert times is None or ns[-1] == pytest.approx(times, rel=0.05)


def test_of_a_store_alone_or_a_load_alone_nothing_is_told():
    rows = frame(Truth())
    for mode in ("load", "store", "load-clean"):
        with pytest.raises(Unavailable):
            prose.stores_said(analysis(rows[rows["mode"] != mode]))
