"""A session program that is made up and does what it is told: `install` writes it, and then it
answers as kernels/session.c does.

It measures nothing: each answer is the template of a record with the point's own fields. What it
was asked is in a log.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

# The fields of an answer that follow from its line, in the order of the line after the id.
FIELDS = ("kernel", "mode", "layout", "order", "lines", "stride_pages", "seed", "region_ms")
EVERY = {"4k": 100}  # after how many answers smaps is read; elsewhere before each


def install(folder: Path, template: dict[str, Any], **faults: Any) -> str:
    """Writes the program; its path.

    faults: `at`, by the `lines` of a point, what becomes of it: "fail CODE", "hang", "crash",
    "kill", "garbage", "other" (another point's answer), "exit CODE" (of the whole process), each
    with " once" for the first time only, or a dictionary of fields of its answer; `most_bytes`, of
    which a larger mapping is refused with `refusal`, a code, or "kill"; `partial`, how many
    mappings end with backing-partial after `partial_after` answers; `proves` (False: never; "all":
    more than there were); `slow_s` for each answer; `hangs` as it maps.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "session.json").write_text(json.dumps({"template": template, **faults}))
    path = folder / "session"
    path.write_text(
        f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import stand_in_session\nstand_in_session.main(sys.argv, __file__)\n"
    )
    path.chmod(0o755)
    return str(path)


def starts(folder: Path) -> list[dict[str, Any]]:
    """Each process that ran: its words, and the lines that it read."""
    made: list[dict[str, Any]] = []
    for line in (
        (folder / "asked.jsonl").read_text().splitlines()
        if (folder / "asked.jsonl").exists()
        else []
    ):
        said = json.loads(line)
        if isinstance(said, list):
            made.append({"words": said, "lines": []})
        else:
            made[-1]["lines"].append(said)
    return made


class Process:
    """One process of the program."""

    def __init__(self, argv: list[str], program: str) -> None:
        self.folder = Path(program).parent
        self.told = json.loads((self.folder / "session.json").read_text())
        self.words, self.answers, self.proved = argv[1:], 0, 0
        self.pages, self.bytes = self.option("--pages"), int(self.option("--bytes", "0"))

    def option(self, name: str, default: str = "") -> str:
        return self.words[self.words.index(name) + 1] if name in self.words else default

    def log(self, said: object) -> None:
        with (self.folder / "asked.jsonl").open("a") as log:
            log.write(json.dumps(said) + "\n")

    def say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    def first_time(self, name: str) -> bool:
        try:
            (self.folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def refuse(self, code: str) -> None:
        if code == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stderr.write(json.dumps({"reason": code, "detail": f"{self.bytes >> 20} MiB"}) + "\n")
        os._exit(3)

    def prove(self) -> None:
        partial = self.told.get("partial", 0)
        if self.answers >= self.told.get("partial_after", 0) and any(
            self.first_time(f"partial-{n}") for n in range(partial)
        ):
            self.refuse("backing-partial")
        proves = self.told.get("proves", True)
        self.proved = self.answers + 7 if proves == "all" else self.answers if proves else 0

    def run(self) -> None:
        self.log(self.words)
        if self.told.get("hangs"):
            time.sleep(60)
        if self.bytes > self.told.get("most_bytes", 1 << 62):
            self.refuse(self.told.get("refusal", "memory-short"))
        self.say({"mapped": self.bytes, "populate_ns": 1, "page_table_bytes": 4096, "proved": 0})
        for line in sys.stdin:
            self.answer(line)
        self.prove()
        self.say({"end": self.answers, "proved": self.proved})

    def answer(self, line: str) -> None:
        self.log(line.strip())
        ident, *values = line.split()
        point = dict(zip(FIELDS, values, strict=False))
        own = values[len(FIELDS) :]
        options = {
            name[2:]: int(value)
            for name, value in zip(own[::2], own[1::2], strict=True)
            if name != "--fresh"
        }
        time.sleep(self.told.get("slow_s", 0))
        if self.answers % EVERY.get(self.pages, 1) == 0:
            self.prove()
        what = self.told.get("at", {}).get(point["lines"], "")
        if isinstance(what, str) and what.endswith(" once"):
            what = what.removesuffix(" once") if self.first_time(f"once-{point['lines']}") else ""
        changes = what if isinstance(what, dict) else {}
        numbers = {name: int(point[name]) for name in ("lines", "stride_pages", "seed")}
        report = (
            self.told["template"]
            | {name: point[name] for name in ("kernel", "layout", "order")}
            | numbers
            | {
                "mode": point["mode"].strip("-"),
                "pages": self.pages,
                "backing": self.pages,
                "options": [*options.items()],
            }
            | changes
        )
        self.befall(what if isinstance(what, str) else "")
        failed = (
            {"reason": what.split()[1], "detail": "as told"}
            if isinstance(what, str) and what.startswith("fail")
            else None
        )
        self.say((failed or report) | {"id": int(ident) + (what == "other"), "proved": self.proved})
        self.answers += 1

    def befall(self, what: str) -> None:
        if what == "hang":
            time.sleep(60)
        elif what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "garbage":
            print("Segmentation fault", flush=True)
        elif what.startswith("exit"):
            self.refuse(what.split()[1])


def main(argv: list[str], program: str) -> None:
    Process(argv, program).run()
