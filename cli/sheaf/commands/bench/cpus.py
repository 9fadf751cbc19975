"""Find the microarchitecture of a CPU from its numbers. A virtual machine may hide the name, but rarely family and model."""

from __future__ import annotations

from collections.abc import Mapping

# By family: first and last model of each range, and the name. Sources: manuals of the vendors, tables of the kernel.
_AMD = {
    23: ((0x00, 0x0F, "Zen"), (0x10, 0x2F, "Zen+"), (0x30, 0xAF, "Zen 2")),
    25: ((0x00, 0x0F, "Zen 3"), (0x10, 0x1F, "Zen 4"), (0x20, 0x5F, "Zen 3"), (0x60, 0xAF, "Zen 4")),
    26: ((0x00, 0x4F, "Zen 5"), (0x60, 0x7F, "Zen 5")),
}
_INTEL = {
    6: {
        63: "Haswell server",
        79: "Broadwell server",
        106: "Ice Lake server",
        108: "Ice Lake server",
        140: "Tiger Lake",
        143: "Sapphire Rapids",
        151: "Alder Lake",
        154: "Alder Lake",
        173: "Granite Rapids",
        175: "Sierra Forest",
        183: "Raptor Lake",
        207: "Emerald Rapids",
    }
}
_ARM = {
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD49): "Neoverse N2",
    (0x41, 0xD4F): "Neoverse V2",
    (0x41, 0xD84): "Neoverse V3",
    (0x41, 0xD8E): "Neoverse N3",
    (0xC0, 0xAC3): "Ampere One",
}


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return -1


def microarchitecture(cpu: Mapping[str, str]) -> str:
    """The name for the fields of one CPU in /proc/cpuinfo; empty if the tables lack it."""
    family, model = _number(cpu.get("cpu family", "")), _number(cpu.get("model", ""))
    if cpu.get("vendor_id") == "AuthenticAMD":
        return next((name for first, last, name in _AMD.get(family, ()) if first <= model <= last), "")
    if cpu.get("vendor_id") == "GenuineIntel":
        if (family, model) == (6, 85):  # three generations share this model number
            stepping = _number(cpu.get("stepping", ""))
            return "Cooper Lake" if stepping >= 10 else "Cascade Lake" if stepping >= 5 else "Skylake server"
        return _INTEL.get(family, {}).get(model, "")
    return _ARM.get((_number(cpu.get("CPU implementer", "")), _number(cpu.get("CPU part", ""))), "")
