"""Publishing: what was measured here is added to what is published, and nothing of either is
lost."""

from support.common import make_record
from support.lab import KERNEL, MACHINE, NAME, ROWS, put, repeats, tree

from tlb.lab.publishing import publish
from tlb.lab.store import LACKS

OTHER = "hugepages"


def gather(repeat: int = 0, **fields: object):
    return make_record(kernel="page_gather", repeat=repeat, **fields)


def test_after_one_chapters_run_publishing_keeps_the_rows_and_documents_of_all_others(store, path):
    put(store, MACHINE, OTHER, KERNEL, gather())
    store.write_document(MACHINE, "jmh", {"scores": []})
    before = tree(path.parent)
    put(
        store.own,
        MACHINE,
        "walk_anatomy",
        KERNEL,
        *(make_record(kernel="table_chase", repeat=repeat) for repeat in range(2)),
    )
    store.own.write_document(MACHINE, LACKS, {"points": []})
    (store.root / f".{MACHINE}.new-x").mkdir()  # what a kill -9 left
    mine = tree(store.own.root)
    for _ in range(2):  # again, it is the same
        assert publish(store, MACHINE) == path.parent
        after = tree(path.parent)
        assert after.keys() == before.keys() | {"table_chase.jsonl"}
        assert {name: after[name] for name in before if name != "grids.json"} == {
            name: content for name, content in before.items() if name != "grids.json"
        }
        assert (
            store.experiments(MACHINE) == sorted([NAME, OTHER, "walk_anatomy"])
            and len(store.load(MACHINE, "walk_anatomy")) == 2
        )
        assert repeats(store) == [0, 1, 2] and len(store.load(MACHINE, OTHER)) == 1
    assert tree(store.own.root) == mine and sorted(p.name for p in store.root.iterdir()) == [
        "own",
        MACHINE,
    ]


def test_of_a_kernel_new_rows_follow_those_published_and_lines_that_are_none_stay_behind(
    store, path
):
    published = path.read_bytes()
    put(store.own, MACHINE, NAME, KERNEL, *(make_record(repeat=repeat) for repeat in (1, 2, 7)))
    rows = store.own.root / MACHINE / f"{ROWS}.jsonl"
    whole = rows.read_bytes()
    rows.write_bytes(whole + b"broken\n" + whole[:50])
    publish(store, MACHINE)
    assert path.read_bytes() == published + whole.splitlines(keepends=True)[-1]
    assert repeats(store) == [0, 1, 2, 7]
