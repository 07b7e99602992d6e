"""What `tlb watch` has seen so far, as metrics that Prometheus reads over HTTP (its text format,
version 0.0.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tlb.programs.watch import WatchState
from tlb.system.reasons import Unavailable

_LOOPBACK = "127.0.0.1"
_MOST_PORT = 65535


def metrics(watched: WatchState | None) -> str:
    """Return the metrics; none before a first sample. Sizes are in bytes, times in seconds."""
    if not watched or not watched.samples:
        return ""
    last, used = watched.samples[-1], watched.used
    windows = {sample.window_s: sample for sample in watched.samples}  # the latest of each
    pages: list[tuple[str, float]] = [
        (f'{{pages="{page}"}}', size) for page, size in last.mapped.items()
    ]
    active: list[tuple[str, float]] = [
        (f'{{window="{s:g}"}}', sample.active_bytes) for s, sample in windows.items()
    ]
    rows: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("resident_bytes", "gauge", "Resident memory by page size.", pages),
        ("page_table_bytes", "gauge", "Page tables.", [("", last.table_bytes)]),
        ("active_bytes", "gauge", "Memory touched in a window, in whole pages.", active),
        ("minor_faults_total", "counter", "Page faults without a disk.", [("", used.minor_faults)]),
        ("major_faults_total", "counter", "Page faults that read.", [("", used.major_faults)]),
        ("cpu_seconds_total", "counter", "CPU time.", [("", used.user_s + used.kernel_s)]),
        ("sampling_seconds_total", "counter", "Spent on samples.", [("", watched.sampling_s)]),
    ]
    return "".join(
        f"# HELP tlb_{name} {says}\n# TYPE tlb_{name} {kind}\n"
        + "".join(f"tlb_{name}{labels} {value:.15g}\n" for labels, value in values)
        for name, kind, says, values in rows
    )


def parsed_address(address: str) -> tuple[str, int]:
    """Return the host and the port of [HOST:]PORT. Raises Unavailable("bad-parameter")."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _MOST_PORT):
        raise Unavailable("bad-parameter", f"--prometheus takes [HOST:]PORT, not '{address}'")
    return host or _LOOPBACK, int(port)


@contextmanager
def serving_metrics(address: str) -> Iterator[Callable[[WatchState], None]]:
    """Serve metrics at [HOST:]PORT, by default on the loopback interface alone; yield what is
    called with each new state. Raises Unavailable("bad-parameter")."""
    place = parsed_address(address)
    latest: list[WatchState] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path.split("?")[0] in ("/", "/metrics")
            body = metrics(latest[-1] if latest else None).encode() if is_known else b""
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            """Keep stderr for messages."""

    try:
        server = ThreadingHTTPServer(place, Handler)
    except OSError as error:
        raise Unavailable("bad-parameter", f"--prometheus {address}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield lambda watched: latest.__setitem__(slice(None), [watched])
    finally:
        server.shutdown()
        server.server_close()
