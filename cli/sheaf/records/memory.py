"""The memory of a process by use: live, warm in each layer of the allocator, returned to the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sheaf.records.record import Record
from sheaf.system import proc


@dataclass(frozen=True)
class Memory:
    """
    Bytes by use. All fields but the last four add up to the memory that the allocator holds; large blocks count in whole
    units. While the process runs, its record lags by some fast-path operations. The lag shifts objects between
    `live_objects` and `sheaves`, whose sum stays right. The values of a running process are read one after another, so
    they belong to slightly different moments.
    """

    live_objects: int
    live_large: int
    sheaves: int  # includes prefilled sheaves, reserves and the quarantine
    barns: int
    slabs: int  # free objects in slabs, even if never touched, and the unused tail of each slab
    span_cache: int
    region: int  # warm spans outside the span caches
    returned: int  # since the start; a forked child continues from its parent's value
    resident: int | None  # None if the process ended without recording it
    peak_resident: int | None
    anonymous: int | None = None  # resident memory of a running process that belongs to no file; None if unknown

    @property
    def live(self) -> int:
        """Bytes allocated by the program; objects count with the size of their class."""
        return self.live_objects + self.live_large

    @property
    def warm(self) -> int:
        """Bytes that are free but possibly resident."""
        return self.sheaves + self.barns + self.slabs + self.span_cache + self.region

    @property
    def warm_most(self) -> int:
        """
        The most of them that may be resident. Much of what is free in slabs was never touched, so this may still be too high.
        """
        return self.warm if self.anonymous is None else min(self.warm, self.anonymous)


def of_system(pid: int) -> tuple[int | None, int | None, int | None]:
    """What the system says of a process: resident bytes, their peak, and those that belong to no file; None if unknown."""
    fields = proc.status(pid)
    return proc.kib(fields, "VmRSS"), proc.kib(fields, "VmHWM"), proc.kib(fields, "RssAnon")


def of_numbers(
    values: Mapping[str, int],
    process: Mapping[str, int],
    caches: Mapping[str, int],
    resident: int | None,
    peak: int | None,
    anonymous: int | None = None,
) -> Memory:
    """From the values of a process, and the sums that its record defines for the process and over all caches."""
    return Memory(
        live_objects=caches["in_use_bytes"],
        live_large=process["large_in_use_bytes"],
        sheaves=caches["in_sheaves_bytes"],
        barns=caches["in_barns_bytes"],
        slabs=caches["in_slabs_bytes"],
        span_cache=values.get("span_cache_bytes", 0),
        region=process["region_free_bytes"],
        returned=values.get("purged_bytes", 0),
        resident=resident,
        peak_resident=peak,
        anonymous=anonymous,
    )


def of_process(record: Record) -> Memory:
    """From its record, and from the system while it runs."""
    if record.here is not None:
        system = of_system(record.here)
    else:
        system = record.process.get("resident_bytes", 0) or None, record.peak_rss or None, None
    return of_numbers(record.process, record.derived(), record.cache_sums, *system)


def of_all(records: Sequence[Record]) -> Memory:
    """The sums over all records, except for `peak_resident`, which is the highest."""
    all_of = [of_process(record) for record in records]
    sums: dict[str, Any] = {name: sum(getattr(m, name) or 0 for m in all_of) for name in Memory.__dataclass_fields__}
    resident = [m.resident for m in all_of if m.resident]
    peaks = [m.peak_resident for m in all_of if m.peak_resident]
    anonymous = sum(m.warm_most for m in all_of)  # not of all that is warm, but of all that may be resident of it
    return Memory(
        **{**sums, "resident": sum(resident) or None, "peak_resident": max(peaks, default=0) or None, "anonymous": anonymous}
    )
