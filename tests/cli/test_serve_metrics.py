"""/metrics: its values, that counters never go backwards, and that the number of series is bounded."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from serving import OPENMETRICS, Fake, Samples, client_of, make_server, now_ns, scrape, value
from sheaf.commands.serve import history, machine
from sheaf.commands.serve.accounts import OTHER
from sheaf.commands.serve.machine import Limits


def counters(samples: Samples) -> Samples:
    return {key: number for key, number in samples.items() if key[0].endswith("_total")}


def test_values(tmp_path: Path) -> None:
    one = Fake(tmp_path, alloc_fastpath=20, alloc_slowpath=4, free_fastpath=3, sheaf_refill=30)
    with client_of(make_server(tmp_path)) as client:
        samples = scrape(client)
        assert value(samples, "sheaf_processes", program="server") == 1
        assert value(samples, "sheaf_live_bytes", program="server", kind="objects") == 21 * 64
        assert value(samples, "sheaf_cache_bytes", cache="malloc-64") == 65536
        assert value(samples, "sheaf_cache_bytes", cache="malloc-64", use="in_use") == 21 * 64
        assert value(samples, "sheaf_cache_live_objects") == 21
        assert value(samples, "sheaf_cache_allocated_objects_total", path="fast") == 20
        assert value(samples, "sheaf_cache_allocated_objects_total", path="slow") == 4
        assert value(samples, "sheaf_cache_refilled_objects_total") == 30
        assert value(samples, "sheaf_process_live_bytes", pid=str(os.getpid())) == 21 * 64
        assert value(samples, "sheaf_resident_bytes") > 1 << 20
        assert value(samples, "sheaf_directory_records", directory=str(tmp_path)) == 1
        assert value(samples, "sheaf_serve_build_info", version="1.2.3", control="false") == 1
        one.count(alloc_fastpath=25)
        assert value(scrape(client), "sheaf_cache_allocated_objects_total", path="fast") == 25


def test_units_and_names(tmp_path: Path) -> None:
    Fake(tmp_path)
    with client_of(make_server(tmp_path)) as client:
        text = client.get("/metrics", headers={"Accept": OPENMETRICS}).text
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    units = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# UNIT")}
    for name, kind in types.items():
        assert name.startswith("sheaf_")
        assert not name.endswith("_total"), "the parser adds it"
        assert kind in ("gauge", "counter", "info")
        if "bytes" in name:
            assert units[name] == "bytes"
        if name in units:
            assert name.endswith(f"_{units[name]}")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("accept", ["*/*", "", "text/plain;version=0.0.4", "text/html,*/*;q=0.8"])
def test_the_text_format_unless_openmetrics_is_asked_for(tmp_path: Path, accept: str) -> None:
    with client_of(make_server(tmp_path)) as client:
        answer = client.get("/metrics", headers={"Accept": accept})
        assert answer.headers["content-type"].startswith("text/plain")
        assert "# EOF" not in answer.text
        answer = client.get("/metrics", headers={"Accept": OPENMETRICS})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")


def test_caches_have_no_series_unless_they_are_asked_for(tmp_path: Path) -> None:
    """Their sums by program remain, also those of processes that ended unseen."""
    one = Fake(tmp_path, alloc_fastpath=20, alloc_slowpath=4, free_fastpath=3, sheaf_refill=30)
    with client_of(make_server(tmp_path, limits=Limits())) as client:
        scrape(client)
        one.count("malloc-128", alloc_fastpath=100)
        one.end()
        Fake(tmp_path, began=now_ns(), mapped=False, alloc_fastpath=7)
        samples = scrape(client)
        assert not any("cache" in name or "cache" in dict(labels) for name, labels in samples)
        assert value(samples, "sheaf_allocated_objects_total", path="fast") == 127
        assert value(samples, "sheaf_allocated_objects_total", path="slow") == 4
        assert value(samples, "sheaf_freed_objects_total", path="fast") == 3
        assert value(samples, "sheaf_refilled_objects_total") == 30
        assert value(samples, "sheaf_live_bytes") == 0


def test_a_forked_child_counts_from_the_fork_without_series_of_caches(tmp_path: Path) -> None:
    with client_of(make_server(tmp_path, limits=Limits())) as client:
        child = Fake(tmp_path, inherited=50, alloc_fastpath=3, slabs=2)
        child.set(purged_bytes=1000)
        samples = scrape(client)
        assert value(samples, "sheaf_allocated_objects_total", path="fast") == 3
        assert value(samples, "sheaf_returned_bytes_total") == 0
        child.set(purged_bytes=1500)
        assert value(scrape(client), "sheaf_returned_bytes_total") == 500


def test_ended_processes_stay_in_the_counters_and_leave_the_gauges(tmp_path: Path) -> None:
    first, second = Fake(tmp_path, alloc_fastpath=100), Fake(tmp_path, alloc_fastpath=10)
    with client_of(make_server(tmp_path)) as client:
        before = scrape(client)
        assert value(before, "sheaf_cache_allocated_objects_total", path="fast") == 110
        first.count(alloc_fastpath=150)
        first.end()
        after = scrape(client)
        assert value(after, "sheaf_cache_allocated_objects_total", path="fast") == 160
        assert value(after, "sheaf_processes") == 1
        assert value(after, "sheaf_cache_live_objects") == 10
        assert value(after, "sheaf_ended_processes_total", how="ended") == 1
        second.end(remove=True)  # its last values are lost
        last = scrape(client)
        assert value(last, "sheaf_cache_allocated_objects_total", path="fast") == 160
        assert value(last, "sheaf_ended_processes_total") == 2
        assert value(last, "sheaf_live_bytes") == 0
        for key, number in counters(before).items():
            assert counters(last)[key] >= number, key


def test_processes_that_come_and_go_between_scrapes_count_once(tmp_path: Path) -> None:
    with client_of(make_server(tmp_path)) as client:
        scrape(client)
        Fake(tmp_path, began=now_ns(), mapped=False, alloc_fastpath=7)
        for _ in range(3):
            samples = scrape(client)
            assert value(samples, "sheaf_cache_allocated_objects_total", path="fast") == 7
            assert value(samples, "sheaf_started_processes_total") == 1
        for path in tmp_path.iterdir():
            os.utime(path)  # a changed time is no new process
        assert value(scrape(client), "sheaf_cache_allocated_objects_total", path="fast") == 7


def test_processes_that_ended_before_the_server_started_do_not_count(tmp_path: Path) -> None:
    Fake(tmp_path, began=5, mapped=False, alloc_fastpath=7)
    with client_of(make_server(tmp_path)) as client:
        assert not any(name == "sheaf_processes" for name, _ in scrape(client))


def test_reused_pid(tmp_path: Path) -> None:
    """A later process has the number and even the file name of an ended one."""
    old = Fake(tmp_path, alloc_fastpath=1000)
    with client_of(make_server(tmp_path)) as client:
        scrape(client)
        old.end()
        new = Fake(tmp_path, alloc_fastpath=5)
        os.replace(new.path, old.path)
        new.path = old.path
        samples = scrape(client)
        assert value(samples, "sheaf_cache_allocated_objects_total", path="fast") == 1005
        assert value(samples, "sheaf_processes") == 1
        new.count(alloc_fastpath=6)
        assert value(scrape(client), "sheaf_cache_allocated_objects_total", path="fast") == 1006


def test_counters_that_are_read_smaller_do_not_go_back(tmp_path: Path) -> None:
    one = Fake(tmp_path, alloc_fastpath=1000)
    with client_of(make_server(tmp_path)) as client:
        scrape(client)
        one.count(alloc_fastpath=3)
        assert value(scrape(client), "sheaf_cache_allocated_objects_total", path="fast") == 1000
        one.count(alloc_fastpath=1001)
        assert value(scrape(client), "sheaf_cache_allocated_objects_total", path="fast") == 1001


def test_a_damaged_record_does_not_end_its_process(tmp_path: Path) -> None:
    one = Fake(tmp_path, alloc_fastpath=1000)
    with client_of(make_server(tmp_path)) as client:
        scrape(client)
        good = one.path.read_bytes()
        with open(one.path, "r+b") as file:
            file.seek(16384)
            file.write(b"\xff" * 100)
        for _ in range(3):
            samples = scrape(client)
            assert value(samples, "sheaf_ended_processes_total") == 0
            assert value(samples, "sheaf_serve_problems") == 1
        with open(one.path, "r+b") as file:
            file.write(good)
        for _ in range(32):
            samples = scrape(client)
        assert value(samples, "sheaf_started_processes_total") == 1
        assert value(samples, "sheaf_cache_allocated_objects_total", path="fast") == 1000


def test_forked_children_do_not_count_what_their_parent_did(tmp_path: Path) -> None:
    parent = Fake(tmp_path)
    parent.set(purged_bytes=1 << 30)
    with client_of(make_server(tmp_path)) as client:
        scrape(client)
        child = Fake(tmp_path, inherited=3, free_fastpath=2)
        child.set(purged_bytes=1 << 30)
        samples = scrape(client)
        assert value(samples, "sheaf_returned_bytes_total") == 1 << 30
        assert value(samples, "sheaf_cache_freed_objects_total", path="fast") == 2
        child.set(purged_bytes=(1 << 30) + 4096)
        assert value(scrape(client), "sheaf_returned_bytes_total") == (1 << 30) + 4096


def test_series_are_bounded(tmp_path: Path) -> None:
    limits = Limits(processes=3, programs=4, caches=5)
    with client_of(make_server(tmp_path, limits=limits)) as client:
        scrape(client)
        fakes = []
        most = 0
        for i in range(12):
            fakes.append(Fake(tmp_path, f"program{i}", began=i + 1))
            for cache in range(6):  # a record of the test has room for 16
                fakes[-1].count(f"cache-{i}-{cache}", slabs=1, objects=1024, free_in_slabs=1000, alloc_fastpath=1)
            samples = scrape(client)
            most = max(most, len(samples))
            programs = {dict(labels).get("program") for name, labels in samples if not name.startswith("sheaf_process_")}
            assert len(programs - {None}) <= limits.programs + 1
            for program in programs - {None}:
                caches = {
                    dict(labels)["cache"]
                    for name, labels in samples
                    if name == "sheaf_cache_slabs" and dict(labels)["program"] == program
                }
                assert len(caches) <= limits.caches + 1
            assert sum(name == "sheaf_process_live_bytes" for name, _ in samples) <= limits.processes
        assert value(samples, "sheaf_processes", program=OTHER) == 8
        assert value(samples, "sheaf_processes") == 12
        for fake in fakes:
            fake.end()
        assert value(scrape(client), "sheaf_processes") == 0
        full = len(scrape(client))
        for i in range(30):
            Fake(tmp_path, f"later{i}", began=now_ns(), mapped=False, alloc_fastpath=1)
        samples = scrape(client)
        assert len(samples) == full
        assert value(samples, "sheaf_started_processes_total") == 42
        assert full <= most


def test_shown_processes_do_not_alternate(tmp_path: Path) -> None:
    server = make_server(tmp_path, limits=Limits(processes=1))
    first, second = Fake(tmp_path, "a", large_bytes=0), Fake(tmp_path, "b")
    size = 1 << 40  # far above the resident size of this process
    first.set(large_bytes=size)
    second.set(large_bytes=size - 1)
    with client_of(server) as client:
        assert value(scrape(client), "sheaf_process_live_bytes", program="a") >= size
        second.set(large_bytes=int(size * 1.2))
        assert value(scrape(client), "sheaf_process_live_bytes", program="a") >= size
        second.set(large_bytes=size * 2)
        samples = scrape(client)
        assert value(samples, "sheaf_process_live_bytes", program="b") >= size * 2
        assert sum(name == "sheaf_process_live_bytes" for name, _ in samples) == 1


def test_odd_names_are_escaped(tmp_path: Path) -> None:
    one = Fake(tmp_path, 'a"b\\c{}é')
    with client_of(make_server(tmp_path)) as client:
        programs = {dict(labels)["program"] for name, labels in scrape(client) if name == "sheaf_processes"}
    assert programs == {one.path.name.split(".")[0]}


def test_memory_stays_level_while_processes_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many scrapes as Prometheus makes in half a day, each with a new short-lived process and an older record pruned."""
    scrapes, window = 2100, 700
    monkeypatch.setattr(machine, "_MOST_COUNTED", 100)  # as if many more processes had ended
    monkeypatch.setattr(history, "POINTS", 10)
    server = make_server(tmp_path)
    old: list[Path] = []
    levels = []
    running = Fake(tmp_path)
    with client_of(server) as client:
        for i in range(scrapes):
            one = Fake(tmp_path, "worker", began=now_ns(), mapped=i % 10 == 0, alloc_fastpath=1)
            running.count(alloc_fastpath=i + 1)
            assert client.get("/metrics").status_code == 200
            if i % 10 == 0:
                one.end()
            old.append(one.path)
            if len(old) > 20:
                old.pop(0).unlink()
            if (i + 1) % window == 0:
                gc.collect()
                levels.append(sys.getallocatedblocks())
        samples = scrape(client)
    assert value(samples, "sheaf_started_processes_total", program="worker") >= scrapes * 0.89
    assert levels[2] - levels[1] < window, levels  # less than one block of memory for each scrape
    running.end()
