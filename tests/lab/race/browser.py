"""A headless Chromium in a network namespace without a single address, and what a page looks like in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter, defaultdict
from html.parser import HTMLParser
from pathlib import Path

LIMIT_S = 60
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
ALONE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def missing() -> str:
    """Why no page can be opened here, or nothing."""
    if CHROMIUM is None:
        return "no Chromium on this machine (Debian: apt-get install chromium)"
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        return "this user may not make a network namespace, so Chromium cannot be kept off the network"
    return ""


def open_page(page: Path, scratch: Path) -> tuple[str, str]:
    """The document after its scripts have run, and what its console said (the browser's own pages talk there too)."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
    ]
    command += [f"--user-data-dir={scratch / 'browser'}", "--window-size=1280,2400", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=4000", "--dump-dom", page.as_uri()]
    browser = subprocess.Popen(
        [*ALONE, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        document, log = browser.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        raise
    assert browser.returncode == 0, log
    return document, "\n".join(
        line for line in log.splitlines() if ":CONSOLE" in line and "source: chrome:" not in line
    )


class Drawn(HTMLParser):
    """Per chart of the page: which classes its SVG has, how often, and which texts."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.classes: dict[str, Counter[str]] = defaultdict(Counter)
        self.texts: dict[str, list[str]] = defaultdict(list)
        self._open: list[tuple[str, str | None, bool]] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        names = (given.get("class") or "").split()
        chart = self._open[-1][1] if self._open else None
        in_svg = tag == "svg" or (bool(self._open) and self._open[-1][2])
        if "chart" in names:
            chart = given.get("id")
        if chart and in_svg:
            self.classes[chart].update([tag, *names])
        if tag not in VOID:
            self._open.append((tag, chart, in_svg))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][1] and self._open[-1][2] and data.strip():
            self.texts[self._open[-1][1] or ""].append(data.strip())
