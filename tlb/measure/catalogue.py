"""The catalogue of kernels: one declaration a kernel, of all that Python knows of it and its own
file does not say by itself.

A new kernel is a C file, its numba twin (kernels/twins/) where it has one, and a declaration here.
tests/measure/test_kernels.py compares each declaration with its file.
"""

from __future__ import annotations

from tlb.measure import namespaces
from tlb.measure.declaration import (
    PATH_BYTES,
    PROGRAM_BYTES,
    ROW_BYTES,
    SIDE_BYTES_PER_LINE,
    Declaration,
    chase_functions,
    copied_bytes,
    fixed_functions,
    guest_bytes,
    join_functions,
    lines_of,
    list_bytes,
    neighbour_bytes,
    option,
    shot_bytes,
    sparse_bytes,
    table_bytes,
    touch_functions,
    walk_functions,
)

_PACKED = {"layout": "packed", "order": "random", "is_chase": False}
_CHASE = {"least_cycles": 1.0, "order_of": "page_chase"}
_FAULTS = {"faults_in": True, "is_chase": False}

CATALOGUE: dict[str, Declaration] = {
    "page_chase": Declaration(
        session="session",
        modes=("", namespaces.NAMESPACES_MODE),
        played={namespaces.NAMESPACES_MODE: namespaces.namespaces_prefix},
        least_cycles=1.0,
        timed=chase_functions,
    ),
    "table_chase": Declaration(
        modes=("random", "even"),
        options={"tables_1": 1, "tables_2": 1, "tables_3": 1, "hot": None},
        layout="alias",
        least_cycles=1.0,
        start_s=0.3,
        timed=fixed_functions("follow_addresses"),
        side_bytes=table_bytes,
    ),
    # Predicted jumps wait for nothing: a core takes one or two a cycle, fused with others. A list
    # has four addresses a line.
    "code_chase": Declaration(
        modes=("listed", "direct"),
        options={"every": 1},
        least_cycles=0.1,
        is_chase=False,
        start_s=0.08,
        side_bytes=lambda point: point.lines * 48,
    ),
    # One fault a page, where populating a range takes them in one go.
    "first_touch": Declaration(
        **_CHASE,
        modes=("address", "visit", "shuffled"),
        start_s=0.4,
        timed=fixed_functions("follow"),
    ),
    "page_gather": Declaration(
        session="session", least_cycles=0.1, timed=fixed_functions("gather")
    ),
    # Between two passes, which wait for nothing, pagemap is read or bits are cleared, page by page.
    "page_store": Declaration(
        session="session",
        modes=("load", "store", "load-clean", "store-clean"),
        least_cycles=0.1,
        start_s=0.3,
        timed=lambda point: ("store_each" if point.mode.startswith("store") else "load_each",),
    ),
    # A random touch multiplies twice to draw its address, and no core starts four multiplications
    # in a cycle.
    "random_touch": Declaration(
        **_PACKED,
        session="session",
        options={"bytes": None, "spare_draws": 0},
        size="bytes",
        lines=lines_of,
        least_cycles=0.5,
        start_s=0.12,
        timed=touch_functions,
    ),
    # The sums wait for each other, an addition a cycle. The default step is the published page's,
    # whatever the base page is.
    "stride_sum": Declaration(
        **_PACKED | {"order": "sequential"},
        session="session",
        modes=("plain", "listed"),
        options={"bytes": None, "step_bytes": 4 << 10},
        size="bytes",
        lines=lines_of,
        least_cycles=0.5,
        start_s=0.06,
        timed=lambda point: ("sum_listed" if point.mode == "listed" else "sum_every",),
        side_bytes=list_bytes,
    ),
    # No bound: Linux may have pages zeroed beforehand.
    "prefault": Declaration(
        **_FAULTS,
        modes=("touch", "populate", "memset"),
        options={"threads": 1},
        order="sequential",
        start_s=0.25,
        timed=lambda point: ("touch",) if point.mode == "touch" else (),
    ),
    # Faults are Linux's work, of which no least is known. An order has four bytes a page.
    "page_fault": Declaration(
        **_FAULTS,
        modes=("file", "anonymous", "grouped"),
        options={"populate": 0, "written": 1},
        start_s=0.15,
    ),
    "touch_again": Declaration(
        **_FAULTS,
        options={"idle_ms": 0},
        order="sequential",
        start_s=0.2,
        idle_s=lambda point: option(point, "idle_ms") / 1e3,
    ),
    "map_churn": Declaration(
        **_PACKED,
        modes=("unmap", "keep"),
        options={"threads": 1, "chunks": 7},
        faults_in=True,
        start_s=0.15,
        side_bytes=copied_bytes,
    ),
    # A hop waits for the last hop of its own walker alone, and no core starts more than four loads
    # in a cycle.
    "graph_walk": Declaration(
        **_PACKED,
        session="graph_walk",
        modes=("plain", "blocked", "prefetch"),
        options={"vertices": None, "walkers": 1, "block_vertices": None}
        | {"block_steps": 1024, "distance": 8, "per_hop": 0},
        size="vertices",
        least_cycles=0.25,
        start_s=0.2,
        timed=walk_functions,
        side_bytes=lambda point: PATH_BYTES * (point.mode == "prefetch"),
    ),
    # A row is stored, and counted or probed for: two stores at the least, and no core completes
    # more than two in a cycle. Its lines are those of six arrays of rows.
    "radix_partition": Declaration(
        **_PACKED,
        session="radix_partition",
        modes=("naive", "partitioned", "partition"),
        options={"tuples": None, "bits": 6, "passes": 1},
        size="tuples",
        lines=lambda rows: 6 * lines_of(rows * ROW_BYTES),
        least_cycles=1.0,
        start_s=0.35,
        timed=join_functions,
    ),
    "guest_chase": Declaration(
        **_CHASE,
        modes=("4k", "2m", "1g"),
        options={"levels": 4},
        inside_bytes=guest_bytes,
        side_bytes=lambda point: point.lines * SIDE_BYTES_PER_LINE + PROGRAM_BYTES,
        in_guest=True,
        timed=fixed_functions("guest_code"),
    ),
    "shootdown": Declaration(
        **_FAULTS,
        modes=("unmap", "protect", "discard", "collapse"),
        options={"threads": 0, "apart": 0},
        order="sequential",
        least_cycles=1.0,
        start_s=0.1,
        side_bytes=lambda point: 0,
        inside_bytes=shot_bytes,
    ),
    "switch_chase": Declaration(
        **_CHASE, modes=("alone", "thread", "process"), options={"hops": 0}
    ),
    "cold_chase": Declaration(
        **_CHASE, faults_in=True, start_s=0.1, timed=fixed_functions("follow")
    ),
    "fork_write": Declaration(
        **_FAULTS,
        modes=("write", "touch"),
        options={"used": 0},
        order="sequential",
        least_cycles=1.0,
        start_s=0.15,
        timed=fixed_functions("write_each"),
        side_bytes=lambda point: 0,
        inside_bytes=sparse_bytes,
    ),
    "neighbour_chase": Declaration(
        **_CHASE,
        modes=("alone", "other", "sibling"),
        options={"stream_kib": 0, "walk_lines": 0, "discard_pages": 0},
        faults_in=True,
        start_s=0.1,
        timed=fixed_functions("follow"),
        side_bytes=neighbour_bytes,
    ),
    # The other thread may collapse as much memory as is chased over.
    "collapse_chase": Declaration(
        **_CHASE,
        modes=("none", "other", "address", "random"),
        faults_in=True,
        start_s=0.15,
        inside_bytes=lambda lines_bytes, point: 2 * lines_bytes,
    ),
    "numa_chase": Declaration(
        **_CHASE,
        modes=("local-local", "remote-local", "local-remote", "remote-remote"),
        timed=fixed_functions("follow"),
    ),
}
