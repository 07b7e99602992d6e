"""Edits of gated.c, each by its name as pairs of old and new text: such as cost page walks or touch
more pages, and such as do neither."""

from pathlib import Path

from support.common import SUPPORT, compiled

SOURCE = SUPPORT / "gated.c"
Edit = tuple[tuple[str, str], ...]
_SHUFFLED = """    for (uint32_t i = NODES - 1; i > 0; i--) {
        uint32_t k = draw(i);
        struct node *kept = nodes[i].next;
        nodes[i].next = nodes[k].next, nodes[k].next = kept;
    }
    for (uint32_t k = 0; k < NODES; k++)
        sum += at->value[0]"""
_COPIED = """    struct record *copy = malloc(RECORDS * sizeof *copy);
    memcpy(copy, records, RECORDS * sizeof *copy);
    records = copy;
    for (uint32_t k = 0; k < VISITS; k++)
        sum += records"""
REGRESSIONS: dict[str, Edit] = {
    "struct + 8 bytes": (("rest[48]", "rest[56]"),),
    "struct aligned": (("};\n\nstruct slot", "} __attribute__((aligned(128)));\n\nstruct slot"),),
    "rows to columns": (
        (
            """    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < SUMMED; column++)
            sum""",
            """    for (int column = 0; column < SUMMED; column++)
        for (int row = 0; row < ROWS; row++)
            sum""",
        ),
    ),
    "table twice as large": (("SLOTS (1u << 21)", "SLOTS (1u << 22)"),),
    "table four times as large": (("SLOTS (1u << 21)", "SLOTS (1u << 23)"),),
    "wider slots": (("uint32_t key, value;", "uint64_t key, value;"),),
    "list out of order": (
        ("    for (uint32_t k = 0; k < NODES; k++)\n        sum += at->value[0]", _SHUFFLED),
    ),
    "larger nodes": (("value[7]", "value[9]"),),
    "one visit more": (
        (
            "sum += records[draw(RECORDS)].amount;",
            "sum += records[draw(RECORDS)].amount + records[draw(RECORDS)].key;",
        ),
    ),
    "more records": (("RECORDS (1u << 18)", "RECORDS (300000u)"),),
    "columns of two pages": (
        ("COLUMNS 1024", "COLUMNS 2048"),
        ("matrix[row][column] =", "matrix[row][column] = matrix[row][COLUMNS / 2 + column] ="),
    ),
    "a second look-up": (
        ("found += slots[at].value;", "found += slots[at].value + slots[draw(SLOTS)].key;"),
    ),
    "memory that is not freed": (("        free(buffer);\n", ""),),
    "memset of all": (
        (
            "    uint64_t sum = 0;\n    for (uint32_t k = 0; k < 200; k++)",
            "    memset(counts, 1, SPARSE);\n    uint64_t sum = 0;\n    for (uint32_t k = 0; k < 200; k++)",
        ),
    ),
    "more buckets": (("BUCKETS 64", "BUCKETS 8192"),),
    "longer history": (("HISTORY (1u << 19)", "HISTORY (1u << 22)"),),
    "history of records": (
        ("uint32_t *ring", "struct record *ring"),
        ("ring[k % HISTORY] = k", "ring[k % HISTORY].key = k"),
        ("ring[draw(HISTORY)]", "ring[draw(HISTORY)].key"),
    ),
    "a copy of the records": (
        ("    for (uint32_t k = 0; k < VISITS; k++)\n        sum += records", _COPIED),
    ),
    "a page a row more": (
        ("#define COLUMNS 1024", "#define COLUMNS 2048"),
        ("SUMMED; column++)\n            matrix", "COLUMNS; column++)\n            matrix"),
    ),
    "rounds of new memory": (("        free(buffer);\n", ""), ("ROUNDS 4", "ROUNDS 3")),
}
NEUTRAL: dict[str, Edit] = {
    "nothing": (),
    "a comment": (
        ("NAMED uint64_t look_up", "/* Look each key up.\n * Twice. */\nNAMED uint64_t look_up"),
    ),
    "another name": (("look_up", "find_values"), ("found", "total")),
    "a message": (("    printf(", '    puts("All of it has been visited.");\n    printf('),),
    "a message at the start": (
        ("    uint64_t sum = visit", '    fprintf(stderr, "begin\\n");\n    uint64_t sum = visit'),
    ),
    "functions in another order": (
        (
            "NAMED uint64_t look_up(void)\n{",
            "NAMED uint64_t keep_history(void);\nNAMED uint64_t look_up(void)\n{",
        ),
    ),
    "a function that is unused": (
        (
            "NAMED double sum_matrix",
            "int unused(int x)\n{\n    return 3 * x;\n}\n\nNAMED double sum_matrix",
        ),
    ),
    "a small allocation": (
        ("    uint64_t found = 0;", "    uint64_t found = 0;\n    free(malloc(100));"),
    ),
    "a buffer on the stack": (
        (
            "    uint64_t found = 0;",
            '    char text[512];\n    snprintf(text, sizeof text, "%p", (void *)slots);\n    uint64_t found = (uint8_t)text[0] == 255;',
        ),
    ),
    "an error check": (
        ("    uint64_t found = 0;", "    if (!slots)\n        abort();\n    uint64_t found = 0;"),
    ),
    "wider counters": (("uint32_t k = 0", "uint64_t k = 0"), ("= k;", "= (uint32_t)k;")),
    "fields in another order": (("uint64_t key, amount;", "uint64_t amount, key;"),),
    "other arithmetic": (("i % 7", "i & 7"),),
    "a loop of two steps": (
        (
            "        sum += records[draw(RECORDS)].amount;",
            "        sum += records[draw(RECORDS)].amount, k++, sum += records[draw(RECORDS)].amount;",
        ),
    ),
    "a function in line": (
        (
            "NAMED uint64_t follow_list",
            "static inline __attribute__((always_inline)) uint64_t follow_list",
        ),
    ),
    "functions in line": (("static __attribute__((noinline))", "static"),),
    "a small static table": (
        (
            "static uint64_t state = 1;",
            "static uint64_t state = 1;\nstatic volatile uint8_t small[1024];",
        ),
        ("found += slots[at].value;", "found += slots[at].value + small[at % 1024];"),
    ),
    "eight bytes for each round": (("malloc(ROUND_BYTES)", "malloc(ROUND_BYTES + 8)"),),
    "the memory of a variable": (("uint64_t found = 0;", "static uint64_t found;"),),
    "another format": (('"%llu\\n"', '"the sum of all is %llu, or %1$llx\\n"'),),
}


def edited(edit: Edit, folder: Path) -> str:
    """Return gated.c compiled with an edit, each of whose texts has to be there."""
    text = SOURCE.read_text()
    for old, new in edit:
        assert old in text, old
        text = text.replace(old, new)
    (folder / SOURCE.name).write_text(text)
    return str(compiled(folder / SOURCE.name, folder / SOURCE.stem, "-O1", "-g", "-Wno-format"))
