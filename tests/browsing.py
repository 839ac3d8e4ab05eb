"""Pages in a headless Chromium, watched: what they say on the console and whom they ask."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@dataclass
class Watched:
    page: Any
    said: list[str] = field(default_factory=list)
    """On the console, and errors."""
    asked: list[str] = field(default_factory=list)
    """Addresses other than the page itself."""

    def check(self):
        assert self.said == []
        assert self.asked == []

    def text(self, selector):
        return self.page.locator(selector).inner_text()


@contextmanager
def opened(file, width=1280, scheme="light"):
    """The page in a file, ready."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        watched = Watched(page)
        page.on("console", lambda message: watched.said.append(message.text))
        page.on("pageerror", lambda error: watched.said.append(str(error)))
        address = file.resolve().as_uri()
        page.on(
            "request",
            lambda request: request.url in (address, "data:,") or watched.asked.append(request.url),
        )
        page.goto(address)
        if page.locator("#data").count():
            page.wait_for_selector("html[data-ready]", state="attached", timeout=10_000)
        yield watched
        browser.close()
