"""Numbers and sizes in bytes as text."""

from __future__ import annotations


def short(n: int) -> str:
    """A number in at most six characters, with a binary unit from 100,000 on."""
    if abs(n) < 100_000:
        return str(n)
    value = float(n)
    for unit in "KMGTPE":
        value /= 1024
        if abs(value) < 1000:
            return f"{value:.0f}{unit}" if abs(value) >= 100 else f"{value:.1f}{unit}"
    return f"{value:.0f}E"


def size(n: int) -> str:
    """Bytes in a readable binary unit, such as 18.8 KiB."""
    value, unit = float(n), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or value.is_integer() else f"{value:.1f} {unit}"


def memory(n: int) -> str:
    """The size of slabs in at most six characters: in KiB, so that the rows of a table compare, up to 100,000 of them."""
    return f"{n // 1024}K" if abs(n) < 100_000 * 1024 else short(n)


def brief(n: int | None) -> str:
    """Bytes in at most five characters."""
    if n is None:
        return "-"
    value = n / 1024
    for unit in "KMGTP":
        if abs(value) < 999.5 or unit == "P":
            break
        value /= 1024
    return f"{value:.1f}{unit}" if 0 < abs(value) < 9.95 else f"{value:.0f}{unit}"


def rate(value: float | None) -> str:
    """A rate in at most six characters."""
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 9.95 else short(round(value))


def exact(n: int) -> str:
    """A multiple of 64 KiB, exactly, with the largest unit that divides it into an integer."""
    kib = n >> 10
    for unit in ("KiB", "MiB", "GiB"):
        if kib % 1024 or not kib or unit == "GiB":
            return f"{kib} {unit}"
        kib //= 1024
    raise AssertionError
