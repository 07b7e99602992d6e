"""The programs whose pages are changed: what each does, how it is started, and with which lever it
is compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tlb.lab.build import FLAGS, KERNELS
from tlb.lab.toolchains import Tool

SOURCES = KERNELS / "programs"
_PYTHON = (sys.executable, "-c")
# the generator of C's standard; only the draws need be the same in both runs
_DRAW = "x = (x * 1103515245 + 12345) & 0x7fffffff"


class Case(NamedTuple):
    """A program with a lever. tool: its version, how it is compiled if it is ours, and how it is
    run; `@` is the folder of what it reads or of what was built. lever: a name of `tlb try`, or a
    variable with its value. metric: the name of a number that it prints, compared in place of its
    time. takes: whether the lever takes large pages away. driver: where it is a server, what is run
    against it and measured. holds_gib: what it holds at most. again: whether the same program is
    among the cases before, so that it counts once."""

    title: str
    tool: Tool
    lever: str
    does: str  # the lever, in a table
    metric: str = ""
    takes: bool = False
    driver: tuple[str, ...] = ()
    holds_gib: int = 2
    again: bool = False

    @property
    def ours(self) -> bool:
        return bool(self.tool.source)

    @property
    def changes_pages(self) -> bool:
        """Whether the lever changes the pages, and nothing else."""
        return "=" not in self.lever or self.lever.startswith("RULES=")


def _c(name: str, *words: str) -> Tool:
    return Tool(
        "C",
        f"{name}.c",
        (),
        (*FLAGS, "-pthread", "-o", f"@/{name}"),
        (f"@/{name}", *words),
        "gcc libc6-dev",
    )


def _go(name: str, *words: str, cgo: int = 0) -> Tool:
    """cgo: 1 for a program whose memory libc maps for it, so that a library can be loaded before
    libc's own call."""
    return Tool(
        "Go",
        f"{name}.go",
        ("go", "version"),
        ("env", f"CGO_ENABLED={cgo}", "go", "build", "-o", f"@/{name}"),
        (f"@/{name}", *words),
        "golang-go gcc libc6-dev" if cgo else "golang-go",
    )


def _of(language: str, version: tuple[str, ...], run: tuple[str, ...], packages: str) -> Tool:
    """Somebody else's program."""
    return Tool(language, "", version, (), run, packages)


_SQL = (
    "CREATE TABLE t(k INTEGER PRIMARY KEY, v INTEGER); WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c "
    "WHERE i < 999999) INSERT INTO t SELECT i, i * 7 FROM c; WITH RECURSIVE c(i, x) AS (SELECT 0, 1 "
    "UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM c WHERE i < 600000) "
    "SELECT sum(v) FROM c JOIN t ON t.k = x % 1000000;"
)
_DICT = (
    f"n = 1_500_000\nd = {{i * 2654435761 % 2**32: i for i in range(n)}}\nk = list(d)\nx, s = 1, 0\nfor _ in range(1_000_000):\n"
    f"    {_DRAW}\n    s += d[k[x % n]]\nprint(s)"
)
_TAKE = "import numpy as np\na = np.ones(1 << 26)\ni = np.random.default_rng(17).integers(0, a.size, 10_000_000)\nprint(a.take(i).sum())"
_HASH = (
    "use integer; my %d; $d{$_ * 2654435761 & 0xffffffff} = $_ for 0 .. 500000; my @k = sort keys %d; my ($x, $s) = (1, 0); "
    'for (1 .. 500000) { $x = ($x * 1103515245 + 12345) & 0x7fffffff; $s += $d{$k[$x % @k]}; } print "$s\\n"'
)
_MAP = (
    "const d = new Map(), n = 2000000; for (let i = 0; i < n; i++) d.set((i * 40503) % 16777213, i); const k = [...d.keys()]; "
    "let x = 1, s = 0; for (let i = 0; i < 1500000; i++) { x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff; "
    "s += d.get(k[x % k.length]); } console.log(s)"
)
# Fills redis, has it save, and writes on meanwhile, a value at a time, as long as that takes about;
# then removes what was saved.
_SAVE = """import os, socket, sys, time
os.chdir(sys.argv[1])
link = socket.socket(socket.AF_UNIX)
link.connect("redis.sock")
answers, keys, value, x, took = link.makefile("rb"), 100_000, b"x" * 1000, 1, []
def ask(*lines):
    link.sendall(b"".join(line + b"\\r\\n" for line in lines))
    return [answers.readline() for _ in lines]
for first in range(0, keys, 1000):
    ask(*(b"SET %d %b" % (key, value) for key in range(first, first + 1000)))
ask(b"BGSAVE")
for _ in range(10_000):
    x = (x * 1103515245 + 12345) & 0x7fffffff
    begin = time.perf_counter()
    ask(b"SET %d %b" % (x % keys, value))
    took.append(time.perf_counter() - begin)
while not os.path.exists("redis.rdb"):
    time.sleep(0.01)
os.unlink("redis.rdb")
print(f"us, the slowest write in a thousand: {1e6 * sorted(took)[-10]:.1f}")
"""
_GIB = str(1 << 30)
HEAPS = {"jvm-start": 1, "jvm-start-2": 2, "jvm-start-4": 4, "jvm-start-8": 8}  # of a JVM, in GiB
# Else it switches transparent large pages off for itself, and no lever reaches it: --disable-thp
# no.
_REDIS = (
    "env",
    "-C",
    "@",
    "redis-server",
    "--port",
    "0",
    "--unixsocket",
    "redis.sock",
    "--save",
    "",
    "--dbfilename",
    "redis.rdb",
    "--rdbcompression",
    "no",
    "--disable-thp",
    "no",
)


def _redis() -> Tool:
    return _of("C", ("redis-server", "--version"), _REDIS, "redis-server redis-tools")


def _heap(gib: int) -> Case:
    return Case(
        f"a JVM that touches {gib} GiB and ends",
        _of(
            "Java",
            ("java", "--version"),
            ("java", f"-Xms{gib}g", f"-Xmx{gib}g", "-XX:+AlwaysPreTouch", "-version"),
            "default-jdk-headless",
        ),
        "jvm",
        "its heap on huge pages",
        holds_gib=gib + 1,
        again=gib > 1,
    )


ADVISED = "huge pages, advised as memory is mapped"
JOINED = "memory collapsed into huge pages from outside"
RULES_LARGE = "the slice in a mapping that is advised"
POOL = "RULES=pool"
RULES_POOL = "the slice in a mapping from the pool"

# The order is that of measuring: where the time is short, the last ones are left out.
CASES = {
    "fare-cache": Case(
        "a fare cache, every key alike",
        _c("fare_cache", _GIB, "6000000", "0"),
        "advise",
        ADVISED,
        "ns a look-up",
    ),
    "sort": Case(
        "GNU sort",
        _of(
            "C",
            ("sort", "--version"),
            (
                "env",
                "LC_ALL=C",
                "sort",
                "--parallel=1",
                "--buffer-size=1G",
                "-o",
                "/dev/null",
                "@/lines.txt",
            ),
            "coreutils",
        ),
        "advise",
        ADVISED,
    ),
    "sqlite": Case(
        "SQLite, look-ups by key in memory",
        _of(
            "C",
            ("sqlite3", ":memory:", "SELECT 'SQLite ' || sqlite_version()"),
            ("sqlite3", ":memory:", _SQL),
            "sqlite3",
        ),
        "advise",
        ADVISED,
    ),
    "dict": Case(
        "CPython's dictionary",
        _of("Python", (sys.executable, "--version"), (*_PYTHON, _DICT), "python3"),
        "advise",
        ADVISED,
    ),
    "sharded": Case(
        "64 threads over 256 MiB",
        _c("sharded", str(1 << 28), "64", "80000"),
        "SHARDED=1",
        "each thread on its own part",
        "ns a read",
    ),
    "rules": Case(
        "a rules engine",
        _go("rules_engine", _GIB, "800000", "0"),
        "RULES=large",
        RULES_LARGE,
        "ns a transaction",
    ),
    "rustc": Case(
        "rustc -O",
        _of(
            "Rust",
            ("rustc", "--version"),
            (
                "rustc",
                "--edition",
                "2021",
                "-O",
                "--crate-type",
                "lib",
                "--emit=obj",
                "-o",
                "@/large.o",
                "@/large.rs",
            ),
            "rustc",
        ),
        "advise",
        ADVISED,
    ),
    "javac": Case(
        "javac",
        _of(
            "Java",
            ("javac", "-version"),
            ("javac", "-d", "@", "@/Large.java"),
            "default-jdk-headless",
        ),
        "jvm",
        "its JVM's heap on huge pages",
    ),
    "gofmt": Case(
        "gofmt",
        _of("Go", ("go", "version"), ("gofmt", "-l", "@/large.go"), "golang-go"),
        "collapse",
        JOINED,
    ),
    "numpy": Case(
        "NumPy, random indices",
        _of(
            "Python",
            (*_PYTHON, "import numpy; print('NumPy', numpy.__version__)"),
            (*_PYTHON, _TAKE),
            "python3-numpy",
        ),
        "numpy-off",
        "NumPy's own advice switched off",
        takes=True,
    ),
    **{name: _heap(gib) for name, gib in HEAPS.items() if gib == 1},
    "gcc": Case(
        "gcc -O2",
        _of("C", ("gcc", "--version"), ("gcc", "-O2", "-S", "-o", "/dev/null", "@/large.c"), "gcc"),
        "advise",
        ADVISED,
    ),
    "perl": Case(
        "Perl's hash",
        _of("C", ("perl", "-e", "print qq(Perl $^V\\n)"), ("perl", "-e", _HASH), "perl"),
        "advise",
        ADVISED,
    ),
    "node": Case(
        "Node's Map",
        _of("C++", ("node", "--version"), ("node", "-e", _MAP), "nodejs"),
        "advise",
        ADVISED,
    ),
    "xz": Case(
        "xz",
        _of(
            "C",
            ("xz", "--version"),
            ("xz", "-6", "--threads=1", "--stdout", "@/less.txt"),
            "xz-utils",
        ),
        "advise",
        ADVISED,
    ),
    "join": Case("a hash join", _c("hash_join", "4000000"), "advise", ADVISED, "ns a row"),
    "join-parts": Case(
        "a hash join, by parts",
        _c("hash_join", "4000000"),
        "JOIN=partitioned",
        "both tables split first",
        "ns a row",
    ),
    "fare-cache-hot": Case(
        "a fare cache, nine in ten of few keys",
        _c("fare_cache", _GIB, "16000000", "90"),
        "advise",
        ADVISED,
        "ns a look-up",
    ),
    "rules-beside": Case(
        "a rules engine beside a stream",
        _go("rules_engine", _GIB, "500000", "1"),
        "RULES=large",
        RULES_LARGE,
        "ns a transaction",
    ),
    "go-map": Case(
        "Go's map of 1 GiB",
        _go("go_map", "6500000", "1500000", "2000000", cgo=1),
        "advise",
        ADVISED,
        "ns a look-up",
    ),
    "go-vet": Case(
        "go vet",
        _of(
            "Go",
            ("go", "version"),
            ("env", "GO111MODULE=off", "GOTOOLCHAIN=local", "go", "vet", "-a", "@/large.go"),
            "golang-go",
        ),
        "collapse",
        JOINED,
    ),
    "redis": Case(
        "redis, filled and read",
        _redis(),
        "advise",
        ADVISED,
        driver=(
            "env",
            "-C",
            "@",
            "redis-benchmark",
            "-s",
            "redis.sock",
            "--csv",
            "-P",
            "64",
            "-t",
            "set,get",
            "-n",
            "400000",
            "-r",
            "400000",
            "-d",
            "500",
        ),
    ),
    "redis-save": Case(
        "redis, written while it saves",
        _redis(),
        "advise",
        ADVISED,
        "us, the slowest write in a thousand",
        driver=(*_PYTHON, _SAVE, "@"),
        again=True,
    ),
    "rules-pool": Case(
        "a rules engine on the pool",
        _go("rules_engine", _GIB, "800000", "0"),
        POOL,
        RULES_POOL,
        "ns a transaction",
    ),
    "rules-pool-beside": Case(
        "a rules engine on the pool beside a stream",
        _go("rules_engine", _GIB, "500000", "1"),
        POOL,
        RULES_POOL,
        "ns a transaction",
    ),
    **{name: _heap(gib) for name, gib in HEAPS.items() if gib > 1},
}


def _functions(count: int, text: str) -> Iterator[str]:
    """So many functions of a language, no two alike."""
    return (
        text.replace("#N", str(n))
        .replace("#M", str(2 * n + 3))
        .replace("#S", str(n % 31))
        .replace("#B", str(n % 7 + 1))
        for n in range(count)
    )


_BODIES = {
    "large.c": (
        250,
        "uint64_t f#N(uint64_t *a, uint64_t n) { uint64_t s = #N; for (uint64_t i = 0; i < n; i++) { s = s * #M + a[i]; "
        "if (s & #B) s ^= a[(i + #N) % n] >> #S; else a[i] = s + #N; } return s; }",
    ),
    "large.rs": (
        1500,
        "pub fn f#N(a: &mut [u64]) -> u64 { let mut s = #N; for i in 0..a.len() { s = s * #M + a[i]; "
        "if s & #B != 0 { s ^= a[(i + #N) % a.len()] >> #S; } else { a[i] = s + #N; } } s }",
    ),
    "Large.java": (
        1500,
        "static long f#N(long[] a) { long s = #N; for (int i = 0; i < a.length; i++) { s = s * #M + a[i]; "
        "if ((s & #B) != 0) s ^= a[(i + #N) % a.length] >> #S; else a[i] = s + #N; } return s; }",
    ),
    "large.go": (
        12000,
        "func f#N(a []uint64) uint64 {\n\ts := uint64(#N)\n\tfor i := range a {\n\t\ts = s*#M + a[i]\n\t\tif s&#B != 0 {\n"
        "\t\t\ts ^= a[(i+#N)%len(a)] >> #S\n\t\t} else {\n\t\t\ta[i] = s + #N\n\t\t}\n\t}\n\treturn s\n}\n",
    ),
}
_FRAMES = {
    "large.c": ("#include <stdint.h>", ""),
    "Large.java": ("class Large {", "}"),
    "large.go": ("package large\n", ""),
}


def inputs(lines: int = 2_500_000) -> dict[str, str]:
    """What the programs read, by its name: lines in an order drawn, and source that no program has
    compiled before."""
    state, drawn = 17, []
    for _ in range(lines):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64  # Knuth's MMIX
        drawn.append(f"{state:016x}")
    files = {
        "lines.txt": "\n".join(drawn) + "\n",
        "less.txt": "\n".join(drawn[: lines // 25]) + "\n",
    }
    for name, (count, text) in _BODIES.items():
        first, last = _FRAMES.get(name, ("", ""))
        files[name] = "\n".join((first, *_functions(count, text), last))
    return files


def write_inputs(folder: Path) -> None:
    for name, text in inputs().items():
        (folder / name).write_text(text, encoding="ascii")
