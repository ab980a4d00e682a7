"""A picture of every page, both themes, wide and as on a phone: `python tests/browser/screenshots.py OUT [NAME...]`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, world  # noqa: E402

SIZES = {"wide": (1280, 900), "phone": (360, 740)}


def main(out: Path, only: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        with world.small(Path(folder)) as service:
            _pictures(browser, service, world.pages(service.advisor), out, only)
        for prefix, empty in (("strange", False), ("empty", True)):
            with tempfile.TemporaryDirectory() as other, world.strange(Path(other), empty=empty) as service:
                named = [(f"{prefix}-{name}", path) for name, path in world.strange_pages(service.advisor)]
                _pictures(browser, service, named, out, only)
        browser.close()


def _pictures(
    browser: Browser, service: world.Service, pages: Sequence[tuple[str, str]], out: Path, only: list[str]
) -> None:
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, base_url=service.url
            )
            page = context.new_page()
            if service.secrets:
                page.goto("/signin")
                if not only or "signin" in only:
                    page.screenshot(path=out / f"signin-{scheme}-{size}.png")
                page.fill("#token", service.secrets["admin"])
                page.click("main button")
            for name, path in pages:
                if not only or name in only:
                    page.goto(path)
                    page.screenshot(path=out / f"{name}-{scheme}-{size}.png", full_page=True)
            context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
