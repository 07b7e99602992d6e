"""Publishing: what was measured here is added to what is published, and nothing of either is
lost."""

from support.campaigns import MACHINE, NAME, put, repeats, tree
from support.common import make_record

from tlb.measure.machine_states import publish
from tlb.measure.record import CounterReading, Record
from tlb.measure.store import (
    PUBLISHED_ROWS_FILE,
    UNMEASURED_POINTS_DOCUMENT,
    Store,
    write_published_rows,
)

OTHER = "hugepages"


def published(store: Store) -> list[tuple[Record, list[str]]]:
    """Rows of two experiments, which are published already, and a document."""
    uncounted = {"walk": CounterReading(reason="no-perf")}
    rows = [(make_record(repeat=repeat, counters=uncounted), [NAME]) for repeat in range(3)]
    rows.append((make_record(kernel="page_gather"), [OTHER]))
    (store.root / MACHINE).mkdir(parents=True)
    write_published_rows(store.root / MACHINE / PUBLISHED_ROWS_FILE, rows)
    store.write_document(MACHINE, "jmh", {"scores": []})
    return rows


def test_after_one_chapters_run_publishing_keeps_the_rows_and_documents_of_all_others(store):
    before = published(store)
    assert store.published(MACHINE, ["page_gather"]) == before[3:]
    assert [one.kernel for one in store.records(MACHINE, ["page_gather"]).values()] == [
        "page_gather"
    ]
    new = [make_record(kernel="table_chase", repeat=repeat) for repeat in range(2)]
    put(store.own, MACHINE, "page_walks", *new)
    store.own.write_document(MACHINE, UNMEASURED_POINTS_DOCUMENT, {"points": []})
    (store.root / f".{MACHINE}.new-x").mkdir()  # what a kill -9 left
    mine = store.own.records(MACHINE)
    for _ in range(2):  # again, it is the same
        assert publish(store, MACHINE) == store.root / MACHINE
        assert Store(store.root).published(MACHINE) == [
            *before,
            *((record, ["page_walks"]) for record in new),
        ]
        assert {*tree(store.root / MACHINE)} == {PUBLISHED_ROWS_FILE, "documents/jmh.json"}
    assert store.own.records(MACHINE) == mine
    assert store.own.read_document(MACHINE, UNMEASURED_POINTS_DOCUMENT) == {"points": []}
    assert sorted(path.name for path in store.root.iterdir()) == ["own", MACHINE]


def test_a_row_of_both_is_there_once_with_the_experiments_and_counters_of_both(store):
    published(store)
    counters = {"walk": CounterReading(value=1e7, event="walks:u")}
    own = [make_record(repeat=repeat, ns_per_access=9.0) for repeat in (1, 7)]  # not counted
    own.append(make_record(repeat=2, ns_per_access=9.0, counters=counters))
    put(store.own, MACHINE, OTHER, *own)
    publish(store, MACHINE)
    assert repeats(Store(store.root)) == [0, 1, 2]
    assert Store(store.root).load(MACHINE, OTHER)["repeat"].tolist() == [1, 2, 7, 0]
    times = {record.repeat: record.ns_per_access for record, _ in store.published(MACHINE)[:4]}
    assert (times[1], times[2], times[7]) == (make_record().ns_per_access, 9.0, 9.0)


def test_rows_that_no_experiment_asked_for_stay_behind(store):
    published(store)
    put(store.own, MACHINE, NAME, make_record(repeat=7))
    store.own.append(MACHINE, make_record(lines=128))
    publish(store, MACHINE)
    assert {record.lines for record, _ in Store(store.root).published(MACHINE)} == {
        make_record().lines
    }
