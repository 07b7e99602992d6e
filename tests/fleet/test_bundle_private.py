"""What leaves a computer in a bundle: no name of a host, a user, a path, an address or a serial
number, wherever the computer says it."""

import copy
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from support import bundles
from support.common import ROOT

from tlb.fleet import archive, check, documents, pack
from tlb.fleet.privacy import unknown
from tlb.machine import host as hosts
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

# Of nobody: RFC 5737 and 3849 keep these addresses for documentation, RFC 7042 the MAC.
SECRETS = [
    *("janes-laptop", "jane", "/home" + "/jane/src", "C:\\Users\\jane", "192.0.2.17"),
    *("ip-192-0-2-17", "2001:db8::17", "00:00:5e:00:53:af", "0000.5e00.53af", "PF2ABCDE"),
    *("5CG1234XYZ", "987654321", "jane@example.org", "db01.example.org"),
    "4c4c4544-0042-3510-8052-b4c04f564433",
]
DATA = ROOT / "data"
DOCUMENT = json.loads(json.dumps(bundles.HOST.model_dump(mode="json")))
# Every field of a description that this computer's may leave out, with something in it.
FULL = DOCUMENT | {
    "tlb_reason": "no-geometry",
    "tlb_unknown_descriptors": ["0xc2"],
    "xen_guest": "HVM",
    "boot": ["pti=off"],
    "numa_balancing": 0,
    "mitigations": {"meltdown": "Mitigation: PTI"},
    "core": {"number": 0, "kind": "cpu_core", "highest_khz": 3500000},
    "kvm": {"device": True, "module": "kvm_intel", "tables": "EPT", "nx_huge_pages": False},
    "pmu": {"tier": "software", "reason": "no-pmu", "devices": ["cpu"], "paranoid": 2},
}


def texts(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Where each text of a document stands, and where each key of a dictionary does that is no
    field's (True)."""
    if isinstance(content, dict):
        for key, value in content.items():
            if path and path[-1] in ("mitigations", "mthp", "khugepaged", "profiles", "lacking"):
                yield (*path, key), True
            yield from texts(value, (*path, key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from texts(value, (*path, number))
    elif isinstance(content, str):
        yield path, False


def planted(content: Any, path: tuple[Any, ...], is_key: bool, text: str) -> Any:
    """The document with a text in this place, or as this key."""
    made = copy.deepcopy(content)
    place = made
    for step in path[:-1]:
        place = place[step]
    if is_key:
        place[text] = place.pop(path[-1])
    else:
        place[path[-1]] = text
    return made


def holds(text: str, secret: str) -> bool:
    return secret.lower() in text.lower() or json.dumps(secret)[1:-1].lower() in text.lower()


def _at(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


DOCUMENTS = {"machine": FULL} | {
    path.stem: json.loads(path.read_text())
    for path in sorted((DATA / "zen-5-b15e0e32/documents").glob("*.json"))
}


def trimmed(content: Any) -> Any:
    """Keep one of a list's entries, which are alike, and two of a profile's functions."""
    if isinstance(content, dict):
        kept = 2 if all(isinstance(value, float) for value in content.values()) else len(content)
        return {key: trimmed(value) for key, value in [*content.items()][:kept]}
    return [trimmed(value) for value in content[:1]] if isinstance(content, list) else content


def variants(value: str, secret: str) -> list[str]:
    around = [f"{secret}-{value}", f"{value}({secret})", f"{secret}/{value}/{secret}"]
    return [secret, f"{value} {secret}", *around]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_text_takes_a_name_out_of_its_computer(name):
    """Alone, behind the text there, before it, and within: each is asked for, or allowed by no form
    that it has."""
    document = trimmed(DOCUMENTS[name])
    for place, is_key in texts(document):
        value = place[-1] if is_key else _at(document, place)
        for secret in SECRETS:
            for text in variants(value, secret):
                passed = public(name, planted(document, place, is_key, text))
                assert not holds(passed, secret), (place, text)


def public(name: str, content: dict[str, Any]) -> str:
    """Return what of a document gets into a bundle and past its own check; "" for nothing."""
    try:
        documents.parsed(f"{name}.json", written := pack.public(f"{name}.json", content))
    except Unavailable:
        return ""
    return written.decode()


def test_documents_go_as_they_are_if_they_name_nobody():
    passed = {name for name, content in DOCUMENTS.items() if public(name, content)}
    assert {"machine", "flags", "flushes", "housekeeping"} <= passed
    assert public("machine", FULL) == documents.written(FULL).decode()


def test_no_member_names_the_store_or_its_path(tmp_path):
    store, path = Store(tmp_path / "janes-laptop"), tmp_path / "bundle.zip"
    pack.write(store, bundles.filled(store), path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"machine.json", "bundle.json"} <= content.keys()
    for text in content.values():
        assert not holds(text, "jane") and not holds(text, str(tmp_path))


def test_a_word_goes_once_its_owner_lets_it(tmp_path):
    store, path = Store(tmp_path), tmp_path / "bundle.zip"
    host = bundles.HOST.model_copy(update={"kernel_release": "6.1.0-jane"})
    machine = bundles.filled(
        store, host, [row.model_copy(update={"state": hosts.state(host)}) for row in bundles.ROWS]
    )
    with pytest.raises(Unavailable) as refused:
        pack.write(store, machine, path)
    assert (
        refused.value.code == "bundle-private"
        and "jane in kernel_release" in str(refused.value)
        and not path.exists()
    )
    assert pack.write(store, machine, path, ["Jane"]).bundle.states.total() == len(bundles.ROWS)
    assert check.opened(archive.read(path)).host.kernel_release == "6.1.0-jane"


KNOWN = """
6.18.44-fc-v657
5.15.167.4-microsoft-standard-WSL2
4.18.0-553.16.1.el8_10.x86_64
6.8.0-1019-aws
5.14.0-427.13.1.el9_4.aarch64+64k
6.10.3-arch1-2
Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz
AMD EPYC 7R13 Processor
13th Gen Intel(R) Core(TM) i7-13700H
Common KVM processor
arm Neoverse V1 r1p1
cc: cc (Debian 12.2.0-14+deb12u1) 12.2.0
gcc: gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0
clang: Ubuntu clang version 18.1.3 (1ubuntu1)
Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable
Mitigation: Enhanced / Automatic IBRS; PBRSB-eIBRS: SW sequence; BHI: BHI_DIS_S
Mitigation: Clear CPU buffers; SMT Host state unknown
pti=off
Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable
"""


@pytest.mark.parametrize("text", KNOWN.strip().splitlines())
def test_what_distributions_and_vendors_write_is_known(text):
    assert unknown(text) == []
