"""The page in a real browser; `tests/run --browser` runs these tests, or SHEAF_BROWSER=1 where chromium is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from areas import Area, One
from conftest import until
from serving import TOKEN, Fake
from test_profile_command import sampled
from test_serve_command import serving

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(os.environ.get("SHEAF_BROWSER") != "1", reason="browser tests run with tests/run --browser"),
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium is not installed (Debian: chromium, chromium-driver)"),
]
STACKS = [One((0x1001, 0x2001, 0x3001), 100_000), One((0x1101, 0x2001, 0x3001), 3_000_000), One((0x1201, 0x3001), 5_000_000)]
SCREENSHOTS = os.environ.get("SHEAF_SCREENSHOTS")


class Page:
    """A tab with the page of a server."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        driver.get("about:blank")
        driver.get_log("browser")  # what the page of an earlier test has left
        driver.get(url)

    def find(self, selector: str) -> Any:
        """The first element."""
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        """All elements."""
        return list(self.driver.find_elements("css selector", selector))

    def run(self, script: str) -> Any:
        """The result of a script."""
        return self.driver.execute_script(f"return {script}")

    @property
    def updates(self) -> int:
        """How often the page has shown new numbers."""
        return int(self.run("document.documentElement.dataset.updates ?? 0"))

    def wait(self, updates: int = 1) -> None:
        """Wait for this many more updates."""
        wanted = self.updates + updates
        until(lambda: self.updates >= wanted)

    def rows(self, table: str = "#process-table") -> list[list[str]]:
        """The cells of a table."""
        script = f"[...document.querySelectorAll('{table} tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        return [list(row) for row in self.run(script)]

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page if SHEAF_SCREENSHOTS names a directory."""
        if SCREENSHOTS:
            width, height = self.run("[innerWidth, document.documentElement.scrollHeight]")
            self.size(width, height)
            self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            self.driver.save_screenshot(str(Path(SCREENSHOTS) / f"{name}.png"))

    def size(self, width: int, height: int = 1000) -> None:
        """Set the size of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        """Prefer light or dark colours."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def errors(self) -> list[str]:
        """Messages of the console since the last call, besides what is expected: refusals that the page explains."""
        entries = self.driver.get_log("browser")
        return [
            one["message"] for one in entries if one["level"] in ("SEVERE", "WARNING") and "status of 4" not in one["message"]
        ]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser without a window, a profile or a network of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    assert BROWSER
    options.binary_location = BROWSER
    directory = tmp_path_factory.mktemp("browser")
    for word in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-background-networking",
        "no-first-run",
        f"user-data-dir={directory}",
        "disable-dev-shm-usage",
    ):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


@contextmanager
def shown(driver: Any, directory: Path, *args: str, fakes: int = 2) -> Iterator[tuple[Page, list[Fake], Any]]:
    """The page of a server with some processes, of which one is sampled."""
    with ExitStack() as stack:
        processes = []
        for i in range(fakes):
            processes.append(Fake(directory, f"program{i}", alloc_fastpath=100 * i, alloc_slowpath=4))
            stack.callback(processes[-1].end)
        victim = stack.enter_context(sampled(directory, [Area(STACKS, on=1)] * 3, Area(STACKS, on=1)))
        _, url = stack.enter_context(serving("--only", str(directory), "--interval", "0.5", *args))
        driver.delete_all_cookies()
        page = Page(driver, url)
        page.size(1300)
        page.scheme("light")
        page.wait(1)
        yield page, processes, victim
        assert page.errors() == []


def test_it_draws_and_updates(driver: Any, tmp_path: Path) -> None:
    with shown(driver, tmp_path) as (page, processes, _):
        assert [row[1] for row in sorted(page.rows(), key=lambda row: row[1])] == ["program0", "program1", "victim"]
        assert page.find("#tiles dd").text == "3"
        assert len(page.all("#memory .series")) == 3
        processes[0].set(large_bytes=1 << 30)
        until(lambda: any("GiB" in row[2] for row in page.rows()))
        processes[1].end()
        until(lambda: len(page.rows()) == 2)
        assert not page.find("#error").is_displayed()
        assert page.run("document.querySelectorAll('link[href^=http], script[src^=http], img[src^=http]').length") == 0


def test_filter_and_sort(driver: Any, tmp_path: Path) -> None:
    with shown(driver, tmp_path) as (page, _, _):
        page.find("#filter").send_keys("PROGRAM1")
        until(lambda: [row[1] for row in page.rows()] == ["program1"])
        assert page.find("#count").text == "1 of 3"
        page.find("#filter").clear()
        page.find("#filter").send_keys("program")
        heading = page.all("#process-table th button")[1]
        heading.click()
        until(lambda: [row[1] for row in page.rows()] == ["program0", "program1"])
        assert page.all("#process-table th")[1].get_attribute("aria-sort") == "ascending"
        heading.click()
        until(lambda: [row[1] for row in page.rows()] == ["program1", "program0"])
        page.wait(2)
        assert page.run("document.activeElement.textContent") == "Program", "an update does not move the focus"


def choose(page: Page, program: str) -> None:
    """Click on the process of a program."""
    index = next(i for i, row in enumerate(page.rows()) if row[1] == program)
    page.all("#process-table tbody button")[index].click()
    until(lambda: page.find("#process").is_displayed() and page.find("#process-title").text.startswith(program))


def test_caches_and_flame_graph(driver: Any, tmp_path: Path) -> None:
    with shown(driver, tmp_path, fakes=1) as (page, _, victim):
        choose(page, "program0")
        assert page.rows("#cache-table")[0][:3] == ["malloc-64", "64", "4"]
        until(
            lambda: (
                "nothing was sampled" in page.find("#flame-text").text or "no room for a profile" in page.find("#flame-text").text
            )
        )
        assert not page.find("#flame").is_displayed()
        choose(page, "victim")
        until(lambda: page.all("#flame .box"))
        words = page.run("[...document.querySelectorAll('#flame .box')].map(one => one.textContent)")
        assert "0x3001" in words
        assert "live bytes" in page.find("#flame-text").text
        assert page.find("#pprof").get_attribute("href").endswith(f"debug/pprof/heap?pid={victim.process.pid}")
        page.find("#kind option[value=allocated]").click()
        until(lambda: "allocated" in page.find("#flame-text").text)
        page.find("#close").click()
        assert not page.find("#process").is_displayed()


def test_without_control_there_are_no_buttons(driver: Any, tmp_path: Path) -> None:
    with shown(driver, tmp_path) as (page, _, _):
        choose(page, "victim")
        page.wait(1)
        for name in ("#trim", "#sample", "#login", "#logout"):
            assert not page.find(name).is_displayed()


def test_buttons_need_the_token(driver: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with shown(driver, tmp_path, "--control", "--token-file", str(token)) as (page, _, victim):
        choose(page, "victim")
        assert not page.find("#trim").is_displayed()
        page.find("#token").send_keys("wrong")
        page.find("#login button").click()
        until(lambda: "wrong token" in page.find("#login-error").text)
        page.wait(1)
        assert page.find("#login-error").is_displayed(), "an update does not remove the message"
        page.find("#token").clear()
        page.find("#token").send_keys(TOKEN)
        page.find("#login button").click()
        until(lambda: page.find("#trim").is_displayed())
        until(lambda: page.find("#sample").text == "Stop profiling")
        page.find("#sample").click()
        assert victim.line() == "rate 0"
        until(lambda: page.find("#sample").text == "Profile")
        page.find("#sample").click()
        assert victim.line() == "rate 524288"
        until(lambda: page.find("#sample").text == "Stop profiling")
        page.find("#trim").click()
        assert victim.line() == "trim"
        until(lambda: page.find("#result").text == "The process returned at most 8.0 MiB to the system.")
        assert page.run("document.cookie") == "", "scripts do not see the cookie"
        page.find("#logout").click()
        until(lambda: not page.find("#trim").is_displayed())


def test_a_server_that_ends_and_returns(driver: Any, tmp_path: Path) -> None:
    with ExitStack() as stack:
        process, url = stack.enter_context(serving("--only", str(tmp_path)))
        page = Page(driver, url)
        page.wait(1)
        process.kill()
        until(lambda: "does not answer" in page.find("#error").text)
        page.errors()  # lost connections
        port = url.rstrip("/").rsplit(":", 1)[1]
        stack.enter_context(serving("--only", str(tmp_path), "--port", port))
        until(lambda: not page.find("#error").is_displayed())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_schemes_and_widths(driver: Any, tmp_path: Path, scheme: str, width: int) -> None:
    """The colours follow the system, all text has contrast, and nothing is wider than the window."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with shown(driver, tmp_path, "--control", "--token-file", str(token), fakes=6) as (page, processes, _):
        page.scheme(scheme)
        page.size(width)
        page.find("#token").send_keys(TOKEN)
        page.find("#login button").click()
        for i, one in enumerate(processes):
            one.set(large_bytes=(i + 1) << 27)
        choose(page, "victim")
        until(lambda: page.all("#flame .box"))
        page.wait(4)
        page.shoot(f"{scheme}-{width}")
        assert page.run("document.documentElement.scrollWidth") <= width
        for name in ("body", "#status", ".tiles dt", "#actions button", "th button", "#process-text", "label"):
            assert contrast(page, name) >= 4.5, name
        background = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(colour(background)) < 382) is (scheme == "dark")
        unnamed = "[...document.querySelectorAll('input, select')].filter(one => one.labels.length === 0).length"
        assert page.run(unnamed) == 0


def colour(text: str) -> tuple[float, ...]:
    """Red, green and blue from rgb(...)."""
    return tuple(float(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def luminance(text: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    parts = [part / 255 for part in colour(text)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page: Page, selector: str) -> float:
    """The contrast of an element's text to what is behind it."""
    script = """(() => { let one = document.querySelector(%r); const text = getComputedStyle(one).color;
        while (one && getComputedStyle(one).backgroundColor === "rgba(0, 0, 0, 0)") one = one.parentElement;
        return [text, getComputedStyle(one ?? document.body).backgroundColor]; })()"""
    low, high = sorted(luminance(text) for text in page.run(script % selector))
    return (high + 0.05) / (low + 0.05)
