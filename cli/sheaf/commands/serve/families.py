"""The metrics that records are exported as: names, units and labels by the conventions of Prometheus.

A family of counters lists, for each value of its label, the counters of a record that it adds up. Families of gauges are
written out in metrics.py, because each of them is computed in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Family:
    """
    A family of counters. `parts` has the names of counters in a record by the value of `label`; families without a label
    have the one key "".
    """

    name: str  # without _total
    help: str
    parts: Mapping[str, tuple[str, ...]]
    label: str = ""
    unit: str = ""


def _plain(name: str, counter: str, text: str, unit: str = "") -> Family:
    return Family(name, text, {"": (counter,)}, unit=unit)


# With the labels program and cache.
OF_CACHES = (
    Family(
        "sheaf_cache_allocated_objects",
        "Objects allocated, by the path that served them.",
        {"fast": ("alloc_fastpath",), "slow": ("alloc_slowpath",), "prefilled": ("alloc_prefilled",)},
        "path",
    ),
    Family(
        "sheaf_cache_freed_objects",
        "Objects freed, by the path that took them.",
        {"fast": ("free_fastpath",), "slow": ("free_slowpath",), "deferred": ("free_rcu_done",)},
        "path",
    ),
    Family(
        "sheaf_cache_barn_gets",
        "Full sheaves wanted from barns, and whether a barn had one.",
        {"hit": ("barn_get",), "miss": ("barn_get_fail",)},
        "result",
    ),
    Family(
        "sheaf_cache_barn_puts",
        "Full sheaves given to barns, and whether the barn accepted them.",
        {"accepted": ("barn_put",), "refused": ("barn_put_fail",)},
        "result",
    ),
    _plain("sheaf_cache_refilled_objects", "sheaf_refill", "Objects moved from slabs to sheaves."),
    _plain("sheaf_cache_flushed_objects", "sheaf_flush", "Objects moved from sheaves to slabs."),
    _plain("sheaf_cache_remote_frees", "remote_free", "Objects freed on another memory node than their own."),
    _plain("sheaf_cache_allocated_slabs", "alloc_slab", "Slabs obtained from the region."),
    _plain("sheaf_cache_freed_slabs", "free_slab", "Slabs returned to the region."),
    _plain("sheaf_cache_lock_waits", "lock_wait", "Times that a thread had to wait for the lock of a cache."),
    _plain("sheaf_cache_failed_allocations", "alloc_fail", "Allocations that failed for want of memory."),
)

# With the label program.
OF_PROCESSES = (
    _plain("sheaf_returned_bytes", "purged_bytes", "Memory of the region returned to the system.", "bytes"),
    _plain("sheaf_returned_hole_bytes", "hole_bytes", "Free pages inside slabs returned to the system.", "bytes"),
    _plain("sheaf_allocated_large_blocks", "large_alloc", "Large blocks allocated."),
    _plain("sheaf_freed_large_blocks", "large_free", "Large blocks freed."),
    _plain("sheaf_moved_large_blocks", "large_remap", "Large blocks moved by mremap."),
    _plain("sheaf_restarts", "restarts", "Restartable sequences that the kernel restarted."),
    _plain("sheaf_remote_drains", "remote_drains", "Sheaves drained from another slot."),
    _plain("sheaf_trims", "trims", "Calls of malloc_trim and kmem_cache_shrink."),
    _plain("sheaf_deferred_free_waits", "rcu_waits", "Deferred frees that waited because too much memory did."),
    _plain("sheaf_deferred_free_losses", "rcu_lost", "Deferred frees that were lost for want of memory."),
    _plain("sheaf_failed_memory_calls", "vm_fail", "System calls on memory that failed and were survived."),
)

# The same with the label program, each summed over all caches.
OF_PROGRAMS = tuple(replace(family, name=family.name.replace("sheaf_cache_", "sheaf_")) for family in OF_CACHES)

CACHE_COUNTERS = tuple(dict.fromkeys(name for family in OF_CACHES for names in family.parts.values() for name in names))
PROCESS_VALUES = tuple(dict.fromkeys(name for family in OF_PROCESSES for names in family.parts.values() for name in names))
PROCESS_COUNTERS = PROCESS_VALUES + CACHE_COUNTERS

# Values that the parts of live and warm memory add up to, by the value of the label.
LIVE = {"objects": "live_objects", "large": "live_large"}
WARM = {"sheaves": "sheaves", "barns": "barns", "slabs": "slabs", "span_cache": "span_cache", "region": "region"}
CACHE_USES = {"in_use": "in_use_bytes", "sheaves": "in_sheaves_bytes", "barns": "in_barns_bytes", "slabs": "in_slabs_bytes"}
