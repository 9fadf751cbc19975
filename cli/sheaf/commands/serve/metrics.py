"""/metrics: what the accounts and the last scan hold, as families of prometheus-client.

The number of series is bounded by the limits of the server: programs and caches by the accounts, processes by those that
are shown apart, directories by machine.MOST_DIRECTORIES.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from sheaf.commands.serve.accounts import Account
from sheaf.commands.serve.families import (
    CACHE_COUNTERS,
    LIVE,
    OF_CACHES,
    OF_PROCESSES,
    OF_PROGRAMS,
    PROCESS_COUNTERS,
    WARM,
    Family,
)
from sheaf.commands.serve.machine import Machine, Snapshot

_PLACE_OF_CACHE_COUNTER = {name: i for i, name in enumerate(CACHE_COUNTERS)}
_PLACE_OF_PROCESS_COUNTER = {name: i for i, name in enumerate(PROCESS_COUNTERS)}
# Gauges of a program that are values of its records: name, unit, value, help.
_VALUES = (
    ("sheaf_huge_bytes", "bytes", "huge_bytes", "Slabs for which huge pages were asked."),
    ("sheaf_deferred_bytes", "bytes", "rcu_bytes", "Memory that waits for a grace period."),
    ("sheaf_region_bytes", "bytes", "region_bytes", "Address space mapped for slabs and large blocks."),
    ("sheaf_large_blocks", "", "large_blocks", "Large blocks in use."),
)


def _gauge(name: str, text: str, labels: Sequence[str] = (), unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels, unit=unit)


def _counters(
    family: Family, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], array[int]]], place: Mapping[str, int]
) -> CounterMetricFamily:
    names = [*labels, family.label] if family.label else list(labels)
    metric = CounterMetricFamily(family.name, family.help, labels=names, unit=family.unit)
    for values, sums in rows:
        for part, counters in family.parts.items():
            metric.add_metric([*values, part] if family.label else values, sum(sums[place[name]] for name in counters))
    return metric


class Metrics(Collector):
    """The metrics of a machine. collect() holds the lock of the machine, so that all families belong to one scan."""

    def __init__(self, machine: Machine, version: str, control: bool) -> None:
        self._machine, self._version, self._control = machine, version, control

    def registry(self) -> CollectorRegistry:
        """A registry that has these metrics and no others."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families."""
        with self._machine.lock:
            accounts = dict(self._machine.accounts.programs)
            yield from _programs(accounts)
            if self._machine.limits.caches:
                yield from _caches(accounts)
            yield from _processes(self._machine.snapshot)
            yield from self._server(self._machine.snapshot)

    def _server(self, snapshot: Snapshot) -> Iterator[Metric]:
        info = InfoMetricFamily("sheaf_serve_build", "The version of sheaf that serves these metrics.")
        info.add_metric([], {"version": self._version, "control": str(self._control).lower()})
        yield info
        yield GaugeMetricFamily(
            "sheaf_serve_unreadable_processes", "Processes that this server may not look into.", value=snapshot.unreadable_count
        )
        yield GaugeMetricFamily(
            "sheaf_serve_unrecorded_processes", "Processes on Sheaf that keep no record.", value=snapshot.bare_count
        )
        yield GaugeMetricFamily(
            "sheaf_serve_problems", "Records and directories that cannot be used.", value=snapshot.problem_count
        )
        yield GaugeMetricFamily(
            "sheaf_serve_scan_seconds",
            "Duration of the last scan of processes and records.",
            value=snapshot.seconds,
            unit="seconds",
        )
        yield GaugeMetricFamily(
            "sheaf_serve_scan_timestamp_seconds", "Time of the last scan.", value=snapshot.time_ns / 1e9, unit="seconds"
        )
        yield CounterMetricFamily("sheaf_serve_scans", "Scans of processes and records.", value=self._machine.scans)
        records = _gauge("sheaf_directory_records", "Records in a directory.", ["directory"])
        size = _gauge("sheaf_directory_size_bytes", "Size of the file system of a directory of records.", ["directory"], "bytes")
        free = _gauge(
            "sheaf_directory_free_bytes",
            "Free space for users on the file system of a directory of records.",
            ["directory"],
            "bytes",
        )
        for room in snapshot.rooms:
            records.add_metric([room.path], room.records)
            size.add_metric([room.path], room.size)
            free.add_metric([room.path], room.free)
        yield from (records, size, free)


def _programs(accounts: Mapping[str, Account]) -> Iterator[Metric]:
    processes = _gauge("sheaf_processes", "Running processes with a record.", ["program"])
    started = CounterMetricFamily("sheaf_started_processes", "Processes seen since the server started.", labels=["program"])
    ended = CounterMetricFamily(
        "sheaf_ended_processes",
        "Processes that ended, by how: they closed their record (ended), executed another program (replaced), or neither (gone).",
        labels=["program", "how"],
    )
    live = _gauge("sheaf_live_bytes", "Memory that running processes have allocated.", ["program", "kind"], "bytes")
    warm = _gauge(
        "sheaf_warm_bytes",
        "Memory that is free but possibly resident, by the layer that holds it.",
        ["program", "layer"],
        "bytes",
    )
    resident = _gauge("sheaf_resident_bytes", "Resident memory of the running processes.", ["program"], "bytes")
    for name, account in accounts.items():
        now = account.now
        processes.add_metric([name], now.processes)
        started.add_metric([name], account.started)
        for how, number in account.ends.items():
            ended.add_metric([name, how], number)
        for kind, field in LIVE.items():
            live.add_metric([name, kind], now.memory.get(field, 0))
        for layer, field in WARM.items():
            warm.add_metric([name, layer], now.memory.get(field, 0))
        resident.add_metric([name], now.memory.get("resident", 0))
    yield from (processes, started, ended, live, warm, resident)
    for metric, unit, value, text in _VALUES:
        gauge = _gauge(metric, text, ["program"], unit)
        for name, account in accounts.items():
            gauge.add_metric([name], account.now.values.get(value, 0))
        yield gauge
    for family in (*OF_PROCESSES, *OF_PROGRAMS):
        rows = [([name], account.process) for name, account in accounts.items()]
        yield _counters(family, ["program"], rows, _PLACE_OF_PROCESS_COUNTER)


def _caches(accounts: Mapping[str, Account]) -> Iterator[Metric]:
    memory = _gauge(
        "sheaf_cache_bytes", "Memory of the slabs of a cache in running processes, by use.", ["program", "cache", "use"], "bytes"
    )
    objects = _gauge("sheaf_cache_live_objects", "Objects of a cache in use in running processes.", ["program", "cache"])
    slabs = _gauge("sheaf_cache_slabs", "Slabs of a cache in running processes.", ["program", "cache"])
    rows: list[tuple[Sequence[str], array[int]]] = []
    for program, account in accounts.items():
        for name, sums in account.caches.items():
            rows.append(([program, name], sums))
        for name, cache in account.now.caches.items():
            for use, value in cache.bytes_by_use.items():
                memory.add_metric([program, name, use], value)
            objects.add_metric([program, name], cache.objects)
            slabs.add_metric([program, name], cache.slabs)
    yield from (memory, objects, slabs)
    for family in OF_CACHES:
        yield _counters(family, ["program", "cache"], rows, _PLACE_OF_CACHE_COUNTER)


def _processes(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ["program", "pid"]
    live = _gauge("sheaf_process_live_bytes", "Memory that one of the largest processes has allocated.", labels, "bytes")
    warm = _gauge(
        "sheaf_process_warm_bytes", "Memory of one of the largest processes that is free but possibly resident.", labels, "bytes"
    )
    resident = _gauge("sheaf_process_resident_bytes", "Resident memory of one of the largest processes.", labels, "bytes")
    start = _gauge(
        "sheaf_process_start_time_seconds", "Start of one of the largest processes, in seconds since 1970.", labels, "seconds"
    )
    for process in snapshot.processes:
        if process.shown:
            values = [process.head.program, str(process.pid)]
            live.add_metric(values, process.memory.live)
            warm.add_metric(values, process.memory.warm)
            resident.add_metric(values, process.resident)
            start.add_metric(values, process.head.start_time_ns / 1e9)
    yield from (live, warm, resident, start)
