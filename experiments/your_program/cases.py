"""The programs whose pages are changed: what each does, how it is started, and with which lever it
is compared."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from tlb.measure.build import COMPILER_FLAGS, KERNELS_FOLDER
from tlb.measure.toolchains import Toolchain

PROGRAM_SOURCES_FOLDER = KERNELS_FOLDER / "programs"


class ProgramCase(NamedTuple):
    """A program with a lever. In commands, `@` is the folder of its input or of what was built."""

    title: str
    tool: Toolchain
    lever: str  # a name of `tlb try`, or a variable with its value
    does: (
        str  # in a table, what is compared: the lever; for one that takes large pages, them over it
    )
    metric: str = ""  # a number that it prints, compared in place of its time
    takes: bool = False  # whether the lever takes large pages away
    driver: tuple[str, ...] = ()  # of a server: the client, which is what is measured
    holds_gib: int = 2  # memory at most
    again: bool = False  # whether an earlier case runs the same program, so that it counts once

    @property
    def ours(self) -> bool:
        return bool(self.tool.source)

    @property
    def changes_pages(self) -> bool:
        """Whether the lever changes the pages, and nothing else."""
        return "=" not in self.lever or self.lever.startswith("RULES=")


ADVISED = "huge pages, advised as memory is mapped"


def _advised(title: str, tool: Toolchain, metric: str = "", **more: Any) -> ProgramCase:
    return ProgramCase(title, tool, "advise", ADVISED, metric, **more)


def c_program(name: str, *words: str) -> Toolchain:
    compile_words = (*COMPILER_FLAGS, "-pthread", "-o", f"@/{name}")
    return Toolchain("C", f"{name}.c", (), compile_words, (f"@/{name}", *words), "gcc libc6-dev")


def _go(name: str, *words: str, cgo: int = 0) -> Toolchain:
    """Return one of our Go programs. cgo: 1 if libc is to map its memory, so that a library loaded
    before libc can change the call."""
    compile_words = ("env", f"CGO_ENABLED={cgo}", "go", "build", "-o", f"@/{name}")
    packages = "golang-go gcc libc6-dev" if cgo else "golang-go"
    run = (f"@/{name}", *words)
    return Toolchain("Go", f"{name}.go", ("go", "version"), compile_words, run, packages)


def _others(language: str, version: str, run: str, packages: str, script: str = "") -> Toolchain:
    """Return somebody else's program. script: its last argument."""
    words = (*shlex.split(run), *([script] if script else []))
    return Toolchain(language, "", tuple(shlex.split(version)), (), words, packages)


_PYTHON = shlex.quote(sys.executable)
# The generator of C's standard. Both runs have to draw the same numbers, no more.
_DRAW = "x = (x * 1103515245 + 12345) & 0x7fffffff"
_SQL = (
    "CREATE TABLE t(k INTEGER PRIMARY KEY, v INTEGER); WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL "
    "SELECT i + 1 FROM c WHERE i < 999999) INSERT INTO t SELECT i, i * 7 FROM c; WITH RECURSIVE "
    "c(i, x) AS (SELECT 0, 1 UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM c "
    "WHERE i < 600000) SELECT sum(v) FROM c JOIN t ON t.k = x % 1000000;"
)
_DICT = f"""n = 1_500_000
d = {{i * 2654435761 % 2**32: i for i in range(n)}}
k = list(d)
x, s = 1, 0
for _ in range(1_000_000):
    {_DRAW}
    s += d[k[x % n]]
print(s)"""
_TAKE = """import numpy as np
a = np.ones(1 << 26)
i = np.random.default_rng(17).integers(0, a.size, 10_000_000)
print(a.take(i).sum())"""
_HASH = (
    "use integer; my %d; $d{$_ * 2654435761 & 0xffffffff} = $_ for 0 .. 500000; "
    "my @k = sort keys %d; my ($x, $s) = (1, 0); for (1 .. 500000) "
    "{ $x = ($x * 1103515245 + 12345) & 0x7fffffff; "
    '$s += $d{$k[$x % @k]}; } print "$s\\n"'
)
_MAP = (
    "const d = new Map(), n = 2000000; for (let i = 0; i < n; i++) "
    "d.set((i * 40503) % 16777213, i); const k = [...d.keys()]; let x = 1, s = 0; "
    "for (let i = 0; i < 1500000; i++) { x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff; "
    "s += d.get(k[x % k.length]); } console.log(s)"
)
# Fills redis, starts a save, writes one value at a time for about as long as the save takes, then
# removes the file.
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
# Look-ups alone, timed when memory is full: a gain is of translation, not of page faults.
_DICT_READS = f"""import time
n, look_ups = 3_000_000, 1_500_000
d = {{i * 2654435761 % 2**32: i for i in range(n)}}
k = list(d)
x, s = 1, 0
begin = time.perf_counter()
for _ in range(look_ups):
    {_DRAW}
    s += d[k[x % n]]
took = time.perf_counter() - begin
print(f"ns a look-up: {{1e9 * took / look_ups:.1f}}")"""
_TAKE_READS = """import time
import numpy as np
a = np.ones(1 << 28)
i = np.random.default_rng(17).integers(0, a.size, 20_000_000)
taken = np.zeros(i.size)
begin = time.perf_counter()
a.take(i, out=taken, mode="clip")
took = time.perf_counter() - begin
print(f"ns a look-up: {1e9 * took / i.size:.2f}")"""
_MAP_READS = (
    "const d = new Map(), n = 4000000, reads = 4000000; for (let i = 0; i < n; i++) "
    "d.set((i * 40503) % 16777213, i); const k = [...d.keys()]; let x = 1, s = 0, began = 0; "
    "for (let pass = 0; pass < 2; pass++) { began = performance.now(); "
    "for (let i = 0; i < reads; i++) { x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff; "
    "s += d.get(k[x % n]); } } "
    "console.log(`ns a look-up: ${(1e6 * (performance.now() - began) / reads).toFixed(1)}`)"
)
_JAVA_READS = """import java.util.HashMap;
class LookUps {
    public static void main(String[] words) {
        int keys = 6_000_000, lookUps = 6_000_000, x = 1;
        var map = new HashMap<Integer, Integer>(2 * keys);
        for (int i = 0; i < keys; i++) map.put(i * 0x9e3779b1, i);
        long sum = 0, began = 0;
        for (int pass = 0; pass < 3; pass++) { // the first ones until the loop is compiled
            began = System.nanoTime();
            for (int i = 0; i < lookUps; i++) {
                x = x * 1103515245 + 12345;
                sum += map.get((x >>> 1) % keys * 0x9e3779b1);
            }
        }
        double took = System.nanoTime() - began;
        System.out.printf("ns a look-up: %.1f%n", sum == 0 ? 0 : took / lookUps);
    }
}
"""
# Reads of random elements of an array of 16 GiB, whose pages the JVM touches as it clears it. The
# elements are 0, which the compiler cannot know: so in a chain each index waits for the read before.
_JAVA_ARRAY_READS = """class ArrayReads {
    static long next(long x) { return x * 6364136223846793005L + 1442695040888963407L; }
    static int index(long x, long[] array) { return (int) ((x >>> 32) * array.length >>> 32); }
    static long apart(long[] array, long x, int reads) {
        long sum = 0;
        for (int i = 0; i < reads; i++) { x = next(x); sum += array[index(x, array)]; }
        return sum;
    }
    static long chained(long[] array, long x, int reads) {
        for (int i = 0; i < reads; i++) x = next(x) + array[index(x, array)];
        return x;
    }
    public static void main(String[] words) {
        var array = new long[Integer.MAX_VALUE - 63];
        boolean inChain = words[0].equals("chained");
        int reads = 20_000_000;
        long found = 0, began = 0;
        for (int pass = 0; pass < 2; pass++) { // the first until the loop is compiled
            began = System.nanoTime();
            found += inChain ? chained(array, pass, reads) : apart(array, pass, reads);
        }
        double took = System.nanoTime() - began;
        System.out.printf("ns a look-up: %.1f%n", found == 1 ? 0 : took / reads);
    }
}
"""
_SQL_ROWS, _SQL_READS = 4_000_000, 1_000_000
_SQL_READ = f"""CREATE TABLE t(k INTEGER PRIMARY KEY, v INTEGER);
WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < {_SQL_ROWS - 1})
INSERT INTO t SELECT i, i * 7 FROM c;
CREATE TABLE began AS SELECT julianday('now') AS day;
WITH RECURSIVE c(i, x) AS (SELECT 0, 1 UNION ALL SELECT i + 1, (x * 1103515245 + 12345) %
2147483648 FROM c WHERE i < {_SQL_READS}) SELECT sum(v) FROM c JOIN t ON t.k = x % {_SQL_ROWS};
SELECT printf('ns a look-up: %.1f', (julianday('now') - day) * 86400e9 / {_SQL_READS})
FROM began;"""
_GIB = str(1 << 30)
_FARES, _LOOK_UP, _TRANSACTION = "fare_cache", "ns a look-up", "ns a transaction"
# Without --disable-thp no, redis switches large pages off for itself, and no lever reaches it.
_REDIS = _others(
    "C",
    "redis-server --version",
    "env -C @ redis-server --port 0 --unixsocket redis.sock --save '' --dbfilename redis.rdb "
    "--rdbcompression no --disable-thp no",
    "redis-server redis-tools",
)
_REDIS_CLIENT = (
    "env -C @ redis-benchmark -s redis.sock --csv -P 64 -t set,get -n 400000 -r 400000 -d 500"
)
_SORT = "env LC_ALL=C sort --parallel=1 --buffer-size=1G -o /dev/null @/lines.txt"
_SQLITE_VERSION = "sqlite3 :memory: \"SELECT 'SQLite ' || sqlite_version()\""
_RUSTC = "rustc --edition 2021 -O --crate-type lib --emit=obj -o @/large.o @/large.rs"
_NUMPY_VERSION = f"{_PYTHON} -c \"import numpy; print('NumPy', numpy.__version__)\""
_VET = "env GO111MODULE=off GOTOOLCHAIN=local go vet -a @/large.go"
_JAVA = "default-jdk-headless"
_JAVA_RUN = "java -Xms2g -Xmx2g -XX:+AlwaysPreTouch @/LookUps.java"
# Of a JVM, in GiB; the last is nearest to the book's heap of 20 GB that 24 GiB of memory can hold.
HEAPS = {"jvm-start": 1, "jvm-start-2": 2, "jvm-start-4": 4, "jvm-start-8": 8, "jvm-start-18": 18}


def _heap(gib: int) -> ProgramCase:
    run = f"java -Xms{gib}g -Xmx{gib}g -XX:+AlwaysPreTouch -version"
    tool, title = _others("Java", "java --version", run, _JAVA), f"a JVM that touches {gib} GiB"
    does = "its heap on huge pages"
    return ProgramCase(title, tool, "jvm", does, holds_gib=gib + 1, again=gib > 1)


def _array_reads(title: str, how: str) -> ProgramCase:
    run = f"java -Xms17g -Xmx17g @/ArrayReads.java {how}"
    tool, does = _others("Java", "java --version", run, _JAVA), "its heap on huge pages"
    return ProgramCase(title, tool, "jvm", does, _LOOK_UP, holds_gib=18, again=True)


JOINED = "memory collapsed into huge pages from outside"
RULES_ENGINE_POOL_VARIABLE = "RULES=pool"
_MAPPINGS = {
    "RULES=large": "the slice in a mapping that is advised",
    RULES_ENGINE_POOL_VARIABLE: "the slice in a mapping from the pool",
}


def _rules(title: str, lever: str, transactions: str, stream: str) -> ProgramCase:
    tool = _go("rules_engine", _GIB, transactions, stream)
    title, again = f"Go, a slice of 1 GiB{title}", bool(title)
    return ProgramCase(title, tool, lever, _MAPPINGS[lever], _TRANSACTION, again=again)


# The order is that of measuring: where the time is short, the last ones are left out.
PROGRAM_CASES = {
    "fare-cache": _advised(
        "1 GiB cache, uniform keys", c_program(_FARES, _GIB, "6000000", "0"), _LOOK_UP
    ),
    "sort": _advised("GNU sort", _others("C", "sort --version", _SORT, "coreutils")),
    "sqlite": _advised(
        "SQLite look-ups by key", _others("C", _SQLITE_VERSION, "sqlite3 :memory:", "sqlite3", _SQL)
    ),
    "dict": _advised(
        "CPython's dictionary",
        _others("Python", f"{_PYTHON} --version", f"{_PYTHON} -c", "python3", _DICT),
    ),
    "sharded": ProgramCase(
        "64 threads, own parts",
        c_program("sharded", str(1 << 28), "64", "80000"),
        "SHARDED=1",
        "each thread on its own part",
        "ns a read",
    ),
    "rules": _rules("", "RULES=large", "800000", "0"),
    "rustc": _advised("rustc -O", _others("Rust", "rustc --version", _RUSTC, "rustc")),
    "javac": ProgramCase(
        "javac",
        _others("Java", "javac -version", "javac -d @ @/Large.java", _JAVA),
        "jvm",
        "its JVM's heap on huge pages",
    ),
    "gofmt": ProgramCase(
        "gofmt", _others("Go", "go version", "gofmt -l @/large.go", "golang-go"), "collapse", JOINED
    ),
    "numpy": ProgramCase(
        "NumPy, random indices",
        _others("Python", _NUMPY_VERSION, f"{_PYTHON} -c", "python3-numpy", _TAKE),
        "numpy-off",
        "NumPy's default, over NUMPY_MADVISE_HUGEPAGE=0",
        takes=True,
    ),
    "jvm-start": _heap(1),
    "gcc": _advised(
        "gcc -O2", _others("C", "gcc --version", "gcc -O2 -S -o /dev/null @/large.c", "gcc")
    ),
    "perl": _advised(
        "Perl's hash", _others("C", "perl -e 'print qq(Perl $^V\\n)'", "perl -e", "perl", _HASH)
    ),
    "node": _advised("Node's Map", _others("C++", "node --version", "node -e", "nodejs", _MAP)),
    "xz": _advised(
        "xz", _others("C", "xz --version", "xz -6 --threads=1 --stdout @/less.txt", "xz-utils")
    ),
    "join": _advised("a hash join", c_program("hash_join", "4000000"), "ns a row"),
    "join-parts": ProgramCase(
        "a hash join, partitioned",
        c_program("hash_join", "4000000"),
        "JOIN=partitioned",
        "both tables split first",
        "ns a row",
    ),
    "fare-cache-hot": _advised(
        "1 GiB cache, few hot keys", c_program(_FARES, _GIB, "16000000", "90"), _LOOK_UP
    ),
    "rules-beside": _rules(", beside a stream", "RULES=large", "500000", "1"),
    "go-map": _advised(
        "Go's map of 1 GiB", _go("go_map", "6500000", "1500000", "2000000", cgo=1), _LOOK_UP
    ),
    "go-vet": ProgramCase(
        "go vet", _others("Go", "go version", _VET, "golang-go"), "collapse", JOINED
    ),
    "redis": _advised("redis, filled and read", _REDIS, driver=tuple(shlex.split(_REDIS_CLIENT))),
    "redis-save": _advised(
        "redis, written while it saves",
        _REDIS,
        "us, the slowest write in a thousand",
        driver=(sys.executable, "-c", _SAVE, "@"),
        again=True,
    ),
    "rules-pool": _rules(" (pool)", RULES_ENGINE_POOL_VARIABLE, "800000", "0"),
    "rules-pool-beside": _rules(
        " (pool), beside a stream", RULES_ENGINE_POOL_VARIABLE, "500000", "1"
    ),
    **{name: _heap(gib) for name, gib in HEAPS.items() if gib > 1},
    "dict-reads": _advised(
        "CPython's dictionary",
        _others("Python", f"{_PYTHON} --version", f"{_PYTHON} -c", "python3", _DICT_READS),
        _LOOK_UP,
        again=True,
    ),
    "sqlite-reads": _advised(
        "SQLite",
        _others("C", _SQLITE_VERSION, "sqlite3 :memory:", "sqlite3", _SQL_READ),
        _LOOK_UP,
        again=True,
    ),
    "node-reads": _advised(
        "Node's Map",
        _others("C++", "node --version", "node -e", "nodejs", _MAP_READS),
        _LOOK_UP,
        again=True,
    ),
    "java-reads": ProgramCase(
        "Java's HashMap",
        _others("Java", "java --version", _JAVA_RUN, _JAVA),
        "jvm",
        "its heap on huge pages",
        _LOOK_UP,
        holds_gib=3,
        again=True,
    ),
    "numpy-reads": ProgramCase(
        "NumPy's take from 2 GiB",
        _others("Python", _NUMPY_VERSION, f"{_PYTHON} -c", "python3-numpy", _TAKE_READS),
        "numpy-off",
        "NumPy's default, over NUMPY_MADVISE_HUGEPAGE=0",
        _LOOK_UP,
        takes=True,
        holds_gib=3,
        again=True,
    ),
    "java-array-reads": _array_reads("Java, an array of 16 GiB", "apart"),
    "java-array-chain": _array_reads(
        "Java, an array of 16 GiB, each read after the last", "chained"
    ),
}
# The cases that time look-ups in memory that is full.
LOOK_UPS_ALONE = ("dict-reads", "sqlite-reads", "node-reads", "java-reads", "numpy-reads")

# By file: how many functions, no two alike; the function; what is before and after them.
_LARGE_SOURCES = {
    "large.c": (
        250,
        "uint64_t f$N(uint64_t *a, uint64_t n) { uint64_t s = $N; "
        "for (uint64_t i = 0; i < n; i++) { s = s * $M + a[i]; "
        "if (s & $B) s ^= a[(i + $N) % n] >> $S; else a[i] = s + $N; } return s; }",
        ("#include <stdint.h>", ""),
    ),
    "large.rs": (
        1500,
        "pub fn f$N(a: &mut [u64]) -> u64 { let mut s = $N; "
        "for i in 0..a.len() { s = s * $M + a[i]; "
        "if s & $B != 0 { s ^= a[(i + $N) % a.len()] >> $S; } else { a[i] = s + $N; } } s }",
        ("", ""),
    ),
    "Large.java": (
        1500,
        "static long f$N(long[] a) { long s = $N; "
        "for (int i = 0; i < a.length; i++) { s = s * $M + a[i]; "
        "if ((s & $B) != 0) s ^= a[(i + $N) % a.length] >> $S; else a[i] = s + $N; } return s; }",
        ("class Large {", "}"),
    ),
    "large.go": (
        12000,
        "func f$N(a []uint64) uint64 {\n\ts := uint64($N)\n\tfor i := range a {\n"
        "\t\ts = s*$M + a[i]\n\t\tif s&$B != 0 {\n\t\t\ts ^= a[(i+$N)%len(a)] >> $S\n"
        "\t\t} else {\n\t\t\ta[i] = s + $N\n\t\t}\n\t}\n\treturn s\n}\n",
        ("package large\n", ""),
    ),
}


def inputs(lines: int = 2_500_000) -> dict[str, str]:
    """Return what the programs read, by file name: lines in a random order, and source code that no
    program has compiled before."""
    state, drawn = 17, []
    for _ in range(lines):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64  # Knuth's MMIX
        drawn.append(f"{state:016x}\n")
    files = {"lines.txt": "".join(drawn), "less.txt": "".join(drawn[: lines // 25])}
    files |= {"LookUps.java": _JAVA_READS, "ArrayReads.java": _JAVA_ARRAY_READS}
    for name, (count, function, (first, last)) in _LARGE_SOURCES.items():
        text = Template(function)
        functions = (text.substitute(N=n, M=2 * n + 3, S=n % 31, B=n % 7 + 1) for n in range(count))
        files[name] = "\n".join((first, *functions, last))
    return files


def write_inputs(folder: Path) -> None:
    for name, text in inputs().items():
        (folder / name).write_text(text, encoding="ascii")
