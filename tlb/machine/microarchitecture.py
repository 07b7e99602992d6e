"""The name of a CPU's microarchitecture, from the numbers it gives itself; "unknown" for any other
number."""

from __future__ import annotations

UNKNOWN = "unknown"

# Intel family 6 by model: Linux, arch/x86/include/asm/intel-family.h, where the parts that share
# the Skylake core (Kaby, Coffee, Comet Lake) are marked as such. Server and client parts differ in
# caches and in events.
_INTEL_6: dict[int, str] = {
    model: name
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
        "Meteor Lake": (0xAA, 0xAC),
        "Arrow Lake": (0xC5, 0xC6),
        "Lunar Lake": (0xBD,),
        "Sapphire Rapids": (0x8F,),
        "Emerald Rapids": (0xCF,),
        "Granite Rapids": (0xAD, 0xAE),
        "Silvermont": (0x37, 0x4A, 0x4D),
        "Airmont": (0x4C, 0x5A),
        "Goldmont": (0x5C, 0x5F),
        "Goldmont Plus": (0x7A,),
        "Tremont": (0x86, 0x96, 0x9C),
        "Gracemont": (0xBE,),
        "Crestmont": (0xAF, 0xB6),
        "Knights Landing": (0x57,),
        "Knights Mill": (0x85,),
    }.items()
    for model in models
}

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

# arm64 by implementer and part of MIDR_EL1: Linux, arch/arm64/include/asm/cputype.h.
_ARM: dict[tuple[int, int], str] = {
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD49): "Neoverse N2",
    (0x6D, 0xD49): "Neoverse N2",  # as Azure Cobalt 100
    (0x41, 0xD4F): "Neoverse V2",
    (0x41, 0xD83): "Neoverse V3AE",
    (0x41, 0xD84): "Neoverse V3",
    (0x41, 0xD8E): "Neoverse N3",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0xC0, 0xAC3): "AmpereOne",
    (0x46, 0x001): "A64FX",
}

# Whom the vendor strings of /proc/cpuinfo and the implementer codes of MIDR_EL1 stand for. Only
# these words may become part of a machine's id, whatever a file says.
VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}
IMPLEMENTERS = {
    0x41: "arm",
    0x46: "fujitsu",
    0x48: "hisilicon",
    0x4E: "nvidia",
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
        return UNKNOWN
    if vendor == "AuthenticAMD":
        return next(
            (name for f, low, high, name in _AMD if f == family and low <= model <= high), UNKNOWN
        )
    if vendor != "GenuineIntel" or family != 6:
        return UNKNOWN
    if model == 0x55 and stepping is not None and stepping >= 5:
        # Linux, tools/perf/pmu-events/arch/x86/mapfile.csv splits at 5; intel-family.h names 7 and
        # 11.
        return "Cooper Lake" if stepping >= 10 else "Cascade Lake"
    return _INTEL_6.get(model, UNKNOWN)


def arm_name(implementer: int | None, part: int | None) -> str:
    """The microarchitecture of an arm64 CPU, from "CPU implementer" and "CPU part" of
    /proc/cpuinfo."""
    return _ARM.get((implementer, part), UNKNOWN)


def names() -> set[str]:
    """Every name that there is."""
    amd = {row[-1] for row in _AMD}
    return amd.union(_INTEL_6.values(), _ARM.values(), {"Cooper Lake", "Cascade Lake", UNKNOWN})
