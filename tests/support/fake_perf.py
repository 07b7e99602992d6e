"""A perf that counts what it is told: `install` puts it into a folder, and then it behaves as `perf
stat -j` of 6.1 does.

It runs the workload, speaks the protocol of `--delay=-1 --control fd:C,A` (commands a line each,
answered by the five bytes "ack\\n" and NUL), and prints its rows in the order asked for. Traps make
it misbehave the ways that perf does.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ACK = b"ack\n\0"
SOFTWARE = ("minor-faults", "task-clock")  # which take no counter
# What perf 6.1 says where perf_event_open is refused (tools/perf/util/evsel.c,
# evsel__open_strerror).
PARANOID = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is {level}:
  -1: Allow use of (almost) all events by all users
>= 2: Disallow kernel profiling
"""


def install(folder: Path, answers: dict[str, Any], **traps: Any) -> str:
    """Writes the program; its path. answers: event -> a value, or the row's fields; an event that
    is not there is unknown.

    traps: refuses=(status, stderr) for every perf, refuses_gated=(status, stderr) once there is a
    gate; hangs; silent (no ack); loses (nothing in the output file); counters (how many the CPU has
    left: hardware events beyond them take turns with the others).
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "perf.json").write_text(json.dumps({"answers": answers, **traps}))
    path = folder / "perf"
    path.write_text(
        f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import fake_perf\nsys.exit(fake_perf.main(sys.argv, __file__))\n"
    )
    path.chmod(0o755)
    return str(path)


def asked(folder: Path) -> list[list[str]]:
    """The events of each perf that ran, in order."""
    log = folder / "asked.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def split(events: str) -> list[str]:
    """The events of an -e list: commas between slashes belong to one."""
    return re.findall(r"[^,/]+(?:/[^/]*/[a-z]*)?", events)


def main(argv: list[str], program: str) -> int:
    if argv[1] in ("record", "script") and os.environ.get("LC_ALL") == "C":
        return sampled(
            argv, json.loads(Path(program).with_name("perf.json").read_text()).get("samples", {})
        )
    # The real one does something else, prints a table, or decimal commas.
    if argv[1:3] != ["stat", "-j"] or os.environ.get("LC_ALL") != "C":
        print(
            f"perf: {argv[1:3]} under the locale {os.environ.get('LC_ALL')} is not what is replayed",
            file=sys.stderr,
        )
        return 1
    told = json.loads(Path(program).with_name("perf.json").read_text())
    at = argv.index("--") if "--" in argv else len(argv)
    options, command = argv[:at], argv[at + 1 :]

    def option(name: str) -> str | None:
        return options[options.index(name) + 1] if name in options else None

    events = split(option("-e") or "")
    with Path(program).with_name("asked.jsonl").open("a") as log:
        log.write(json.dumps(events) + "\n")
    gated, output = option("--control"), option("-o")
    if output:
        Path(output).write_text("# started on Fri Jan 31 12:00:00 2025\n\n")
    refusal = told.get("refuses") or (told.get("refuses_gated") if gated else None)
    if refusal:
        sys.stderr.write(refusal[1])
        return int(refusal[0])
    for event in events:
        if event not in told["answers"]:
            sys.stderr.write(
                f"event syntax error: '{event}'\n Run 'perf list' for a list of valid events\n"
            )
            return 129
    if told.get("hangs"):
        subprocess.run(["sleep", str(told["hangs"])])
    is_open = "--delay=-1" not in options
    enabled, status = run(command, gated, silent=bool(told.get("silent")), enabled=is_open)
    if status < 0:
        sys.stderr.write(
            f"{command[0]}: {signal.strsignal(-status)}\n"
        )  # perf prints it and exits with 0
    hardware = sum(not event.startswith(SOFTWARE) for event in events)
    share = min(100.0 * told.get("counters", hardware) / max(hardware, 1), 100.0)
    rows = [
        row(
            event,
            told["answers"][event],
            enabled or not gated,
            100.0 if event.startswith(SOFTWARE) else share,
        )
        for event in events
    ]
    text = "".join(f"{line}\n" for line in rows)
    if not told.get("loses"):
        if output:
            with open(output, "a") as file:
                file.write(text)
        else:
            sys.stderr.write(text)
    return max(status, 0)


def sampled(argv: list[str], samples: dict[str, Any]) -> int:
    """`perf record -e EVENT -o FILE ... -- COMMAND` and `perf script -i FILE -F data_page_size`, as
    6.1 does them. samples: event -> what is sampled, a word a load; an event that is not there is
    unknown, and one that is a text is refused with it."""
    if argv[1] == "script":
        if argv[4:] != ["-F", "data_page_size"]:
            return 129
        print("\n".join(f" {word}" for word in json.loads(Path(argv[3]).read_text())))
        return 0
    event, output = (argv[argv.index(name) + 1] for name in ("-e", "-o"))
    answer = samples.get(
        event, f"event syntax error: '{event}'\nRun 'perf list' for a list of valid events\n"
    )
    if isinstance(answer, str):
        sys.stderr.write(answer)
        return 255 if event in samples else 129
    Path(output).write_text(json.dumps(answer))
    return subprocess.run(argv[argv.index("--") + 1 :]).returncode


def run(command: list[str], gated: str | None, silent: bool, enabled: bool) -> tuple[bool, int]:
    """Runs the workload or, attached to one that runs (--pid), waits for SIGINT; whether the gate
    was ever opened, and the exit status."""
    if gated is None:
        return True, subprocess.Popen(command, close_fds=False).wait()
    stopped: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: stopped.append(0))
    control, ack = (int(fd) for fd in gated.removeprefix("fd:").split(","))
    heard = b""
    while not stopped:
        if select.select([control], [], [], 0.005)[0]:
            heard += os.read(control, 100)
            *commands, heard = heard.split(b"\n")
            for said in commands:
                enabled = enabled or said == b"enable"
                if (
                    said in (b"enable", b"disable", b"ping") and not silent
                ):  # perf passes over what it does not know in silence
                    os.write(ack, ACK)
    return enabled, 0


def row(event: str, answer: Any, enabled: bool, share: float = 100.0) -> str:
    fields = answer if isinstance(answer, dict) else {"value": answer}
    value = fields["value"] if enabled else "<not counted>"
    runtime = 0 if str(value).startswith("<") else fields.get("runtime", 60_000_000)
    running = 0.0 if value == "<not counted>" else fields.get("running", share)
    said = value if isinstance(value, str) else f"{value:f}"
    return json.dumps(
        {
            "counter-value": said,
            "unit": fields.get("unit", ""),
            "event": fields.get("name", event),
            "event-runtime": runtime,
            "pcnt-running": running,
            **fields.get("more", {}),
        }
    )


# --- a workload that opens the gate as a kernel does: argv: SECONDS ... --perf-fds CONTROL,ACK

GATED = """
import os, sys, time
print('{"mapped": 0}', flush=True)
sys.stdin.readline()
control, ack = (int(fd) for fd in sys.argv[sys.argv.index("--perf-fds") + 1].split(","))
for said in (b"enable\\n", b"disable\\n"):
    os.write(control, said)
    got = b""
    while len(got) < 5:
        got += os.read(ack, 5 - len(got))
    assert got == b"ack\\n\\0", got
    time.sleep(float(sys.argv[1]))
print('{"id": "0", "proved": 1}', flush=True)
sys.stdin.read()
print('{"end": 1, "proved": 1}', flush=True)
"""


def workload(code: str = GATED, seconds: float = 0.0) -> list[str]:
    """A command that runs `code`; it takes a few hundredths of a second and needs no compiler."""
    return [sys.executable, "-SEc", code, str(seconds)]
