"""The name of a CPU's microarchitecture, from the numbers it gives itself; "unknown" for any other
number. A name may lack events: tlb/measure/events.py has those of fewer CPUs."""

from __future__ import annotations

UNKNOWN_MICROARCHITECTURE = "unknown"

# Intel by family and model: Linux, arch/x86/include/asm/intel-family.h, where the parts that share
# the Skylake core (Kaby, Coffee, Comet Lake) are marked as such; for newer parts, mapfile.csv of
# github.com/intel/perfmon, by which 0xB5 (Arrow Lake U) has the cores of Meteor Lake. Server and
# client parts differ in caches and in events.
_INTEL: dict[tuple[int, int], str] = {
    (6, model): name
    for name, models in {
        "Core 2": (0x0F, 0x16, 0x17, 0x1D),
        "Nehalem": (0x1A, 0x1E, 0x1F, 0x2E),
        "Westmere": (0x25, 0x2C, 0x2F),
        "Sandy Bridge": (0x2A,),
        "Sandy Bridge server": (0x2D,),
        "Ivy Bridge": (0x3A,),
        "Ivy Bridge server": (0x3E,),
        "Haswell": (0x3C, 0x45, 0x46),
        "Haswell server": (0x3F,),
        "Broadwell": (0x3D, 0x47),
        "Broadwell server": (0x4F, 0x56),
        "Skylake client": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
        "Skylake server": (0x55,),  # to stepping 4: see x86_name
        "Cannon Lake": (0x66,),
        "Ice Lake client": (0x7D, 0x7E),
        "Ice Lake server": (0x6A, 0x6C),
        "Tiger Lake": (0x8C, 0x8D),
        "Rocket Lake": (0xA7,),
        "Alder Lake": (0x97, 0x9A),
        "Raptor Lake": (0xB7, 0xBA, 0xBF),
        "Meteor Lake": (0xAA, 0xAC, 0xB5),
        "Arrow Lake": (0xC5, 0xC6),
        "Lunar Lake": (0xBD,),
        "Panther Lake": (0xCC, 0xD5, 0xE5),
        "Bartlett Lake": (0xD7,),
        "Lakefield": (0x8A,),
        "Sapphire Rapids": (0x8F,),
        "Emerald Rapids": (0xCF,),
        "Granite Rapids": (0xAD, 0xAE),
        "Bonnell": (0x1C, 0x26, 0x27, 0x35, 0x36),
        "Silvermont": (0x37, 0x4A, 0x4D),
        "Airmont": (0x4C, 0x5A, 0x75),
        "Goldmont": (0x5C, 0x5F),
        "Goldmont Plus": (0x7A,),
        "Tremont": (0x86, 0x96, 0x9C),
        "Gracemont": (0xBE,),
        "Crestmont": (0xAF, 0xB6),  # Sierra Forest, Grand Ridge
        "Darkmont": (0xDD,),  # Clearwater Forest
        "Knights Landing": (0x57,),
        "Knights Mill": (0x85,),
    }.items()
    for model in models
} | {(18, 0x01): "Nova Lake", (18, 0x03): "Nova Lake", (19, 0x01): "Diamond Rapids"}

# AMD by family and range of models: Linux, arch/x86/kernel/cpu/amd.c, "Figure out Zen generations".
_AMD: tuple[tuple[int, int, int, str], ...] = (
    (0x17, 0x00, 0x2F, "Zen 1"),
    (0x17, 0x50, 0x5F, "Zen 1"),
    (0x17, 0x30, 0x4F, "Zen 2"),
    (0x17, 0x60, 0x7F, "Zen 2"),
    (0x17, 0x90, 0x91, "Zen 2"),
    (0x17, 0xA0, 0xAF, "Zen 2"),
    (0x19, 0x00, 0x0F, "Zen 3"),
    (0x19, 0x20, 0x5F, "Zen 3"),
    (0x19, 0x10, 0x1F, "Zen 4"),
    (0x19, 0x60, 0xAF, "Zen 4"),
    (0x1A, 0x00, 0x2F, "Zen 5"),
    (0x1A, 0x40, 0x4F, "Zen 5"),
    (0x1A, 0x60, 0x7F, "Zen 5"),
)
HYGON_FAMILY = 0x18  # Dhyana, made under licence from AMD: Linux, arch/x86/kernel/cpu/hygon.c

# arm64 by implementer and part of MIDR_EL1: Linux, arch/arm64/include/asm/cputype.h; Cortex-A34,
# A65 and Neoverse E1: tools/perf/pmu-events/arch/arm64/mapfile.csv.
_ARM: dict[tuple[int | None, int | None], str] = {
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD49): "Neoverse N2",
    (0x6D, 0xD49): "Neoverse N2",  # as Azure Cobalt 100
    (0x41, 0xD4A): "Neoverse E1",
    (0x41, 0xD4F): "Neoverse V2",
    (0x41, 0xD83): "Neoverse V3AE",
    (0x41, 0xD84): "Neoverse V3",
    (0x41, 0xD8E): "Neoverse N3",
    (0x41, 0xD02): "Cortex-A34",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD06): "Cortex-A65",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD0E): "Cortex-A76AE",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD4C): "Cortex-X1C",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x41, 0xD89): "Cortex-A720AE",
    (0x41, 0xD8B): "C1-Pro",
    (0x41, 0xD8C): "C1-Ultra",
    (0x41, 0xD90): "C1-Premium",
    (0x42, 0x516): "ThunderX2",  # Vulcan, before Cavium bought it
    (0x43, 0x0A1): "ThunderX",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "TaiShan v110",  # Kunpeng 920
    (0x48, 0xD02): "HiSilicon HIP09",
    (0x48, 0xD06): "HiSilicon HIP12",
    (0x4E, 0x003): "Denver",
    (0x4E, 0x004): "Carmel",
    (0x4E, 0x010): "Olympus",
    (0x50, 0x000): "X-Gene",
    (0x51, 0x001): "Oryon",
    (0x51, 0xC00): "Falkor",
    (0x61, 0x022): "Icestorm",
    (0x61, 0x023): "Firestorm",
    (0x61, 0x024): "Icestorm",
    (0x61, 0x025): "Firestorm",
    (0x61, 0x028): "Icestorm",
    (0x61, 0x029): "Firestorm",
    (0x61, 0x032): "Blizzard",
    (0x61, 0x033): "Avalanche",
    (0x61, 0x034): "Blizzard",
    (0x61, 0x035): "Avalanche",
    (0x61, 0x038): "Blizzard",
    (0x61, 0x039): "Avalanche",
    (0xC0, 0xAC3): "AmpereOne",
    (0xC0, 0xAC4): "AmpereOneX",  # perf's folder; cputype.h calls it Ampere1A
}

# Whom the vendor strings of /proc/cpuinfo and the implementer codes of MIDR_EL1 stand for. Only
# these words may become part of a machine's id, whatever a file says.
VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "hygon",
    "CentaurHauls": "centaur",
    "Shanghai": "zhaoxin",
}
ARM_IMPLEMENTERS = {
    0x41: "arm",
    0x42: "broadcom",
    0x43: "cavium",
    0x46: "fujitsu",
    0x48: "hisilicon",
    0x4E: "nvidia",
    0x50: "apm",
    0x51: "qualcomm",
    0x61: "apple",
    0x6D: "microsoft",
    0xC0: "ampere",
}


def x86_name(vendor: str, family: int | None, model: int | None, stepping: int | None) -> str:
    """The microarchitecture of an x86-64 CPU, from its vendor string, family, model and stepping.

    A hypervisor may state another CPU than the one underneath; then this names the one stated.
    """
    if family is None or model is None:
        return UNKNOWN_MICROARCHITECTURE
    if vendor == "AuthenticAMD":
        return next(
            (name for f, low, high, name in _AMD if f == family and low <= model <= high),
            UNKNOWN_MICROARCHITECTURE,
        )
    if vendor == "HygonGenuine":
        return "Dhyana" if family == HYGON_FAMILY else UNKNOWN_MICROARCHITECTURE
    if vendor != "GenuineIntel":
        return UNKNOWN_MICROARCHITECTURE
    if (family, model) == (6, 0x55) and stepping is not None and stepping >= 5:
        # Linux, tools/perf/pmu-events/arch/x86/mapfile.csv splits at 5; intel-family.h names 7 and
        # 11.
        return "Cooper Lake" if stepping >= 10 else "Cascade Lake"
    return _INTEL.get((family, model), UNKNOWN_MICROARCHITECTURE)


def arm_name(implementer: int | None, part: int | None) -> str:
    """The microarchitecture of an arm64 CPU, from "CPU implementer" and "CPU part" of
    /proc/cpuinfo."""
    return _ARM.get((implementer, part), UNKNOWN_MICROARCHITECTURE)


ARM_NAMES = frozenset(_ARM.values())


def names() -> set[str]:
    """Every name that there is."""
    amd = {row[-1] for row in _AMD}
    intel = {*_INTEL.values(), "Cooper Lake", "Cascade Lake"}
    return {*amd, *intel, *ARM_NAMES, "Dhyana", UNKNOWN_MICROARCHITECTURE}
