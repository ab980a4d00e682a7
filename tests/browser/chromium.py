"""Debian's Chromium, driven by Playwright, and what a page must not do in it."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request

PATH = Path("/usr/bin/chromium")


def launch(playwright: Playwright) -> Browser:
    """A browser without a window; root has to switch its sandbox off."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=PATH, args=flags)


class Watched:
    """Collects what a page complains of: errors in the console, scripts that break, requests to another host."""

    def __init__(self, page: Page, url: str) -> None:
        self.complaints: list[str] = []
        self._host = urlsplit(url).netloc
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # A page that is an error is logged in the console, too: by its status, and for the document alone.
        expected = message.text.startswith("Failed to load resource") and "/static/" not in message.location["url"]
        if message.type in {"error", "warning"} and not expected:
            self.complaints.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.complaints.append(f"request to another host: {request.url}")
