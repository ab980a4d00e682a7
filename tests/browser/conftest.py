"""One browser and two services for the tests of a file; every page is watched, and must not complain.

While it lives, Playwright has an event loop of its own running in this thread, in which no other test could run one:
it ends with the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, StorageState, expect, sync_playwright

from tests.browser import chromium, world

expect.set_options(timeout=30_000)  # of a busy machine; nothing waits that long where it is quiet


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not chromium.PATH.exists():
        pytest.skip(f"there is no {chromium.PATH}: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def small(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[world.Service]:
    with world.small(tmp_path_factory.mktemp("small")) as service:
        yield service


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[world.Service]:
    with world.large(tmp_path_factory.mktemp("large")) as service:
        yield service


@pytest.fixture(scope="module")
def signed_in(browser: Browser, small: world.Service) -> StorageState:
    """The cookie of an administrator."""
    context = browser.new_context(base_url=small.url)
    page = context.new_page()
    page.goto("/signin")
    page.get_by_label("Token").fill(small.secrets["admin"])
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def context(browser: Browser, small: world.Service, signed_in: StorageState) -> Iterator[BrowserContext]:
    """Of an administrator of the small service."""
    context = browser.new_context(base_url=small.url, storage_state=signed_in)
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, small: world.Service) -> Iterator[Page]:
    """A page of an administrator that must not complain."""
    page = context.new_page()
    watched = chromium.Watched(page, small.url)
    yield page
    assert watched.complaints == []
