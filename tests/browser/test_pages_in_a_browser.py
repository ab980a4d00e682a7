"""The pages in a real browser: questions are asked and answers read, by mouse, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, StorageState, expect

from advisor.domain import Host
from tests.browser import chromium
from tests.browser.world import Service, demonstrated, pages, strange, strange_pages

pytestmark = pytest.mark.timeout(900)  # the walk through all pages is one fixture, and a busy machine is slow at it

# Of the many operations and shapes of the API that look alike, a few stand for all: axe takes minutes over the rest.
ALIKE = ".docs article:nth-of-type(n+6), .index > div:nth-of-type(n+3)"
FEWER = f"document.querySelectorAll('{ALIKE}').forEach(one => one.remove())"
AXE = Axe().axe_script
SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@dataclass(slots=True)
class Walked:
    """What was found on every page, by the name of the page."""

    complaints: list[str] = field(default_factory=list)
    light: dict[str, list[str]] = field(default_factory=dict)
    dark: dict[str, list[str]] = field(default_factory=dict)
    sideways: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def walked(
    browser: Browser, small: Service, signed_in: StorageState, tmp_path_factory: pytest.TempPathFactory
) -> Walked:
    """Every page is opened once and looked at in both themes and at the width of a phone."""
    found = Walked()
    context = browser.new_context(base_url=small.url, storage_state=signed_in, color_scheme="light")
    _walk(found, context, small, (*pages(small.advisor), ("signin", "/signin")), "")
    for prefix, empty in (("strange ", False), ("empty ", True)):
        with strange(tmp_path_factory.mktemp("strange"), empty=empty) as service:
            context = browser.new_context(base_url=service.url, color_scheme="light")
            _walk(found, context, service, strange_pages(service.advisor), prefix)
    return found


def _walk(
    found: Walked, context: BrowserContext, service: Service, named: Sequence[tuple[str, str]], prefix: str
) -> None:
    page = context.new_page()
    watched = chromium.Watched(page, service.url)
    for name, path in named:
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto(path)
        if page.evaluate(SIDEWAYS):
            found.sideways.append(prefix + name)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(FEWER)
        page.evaluate(AXE)
        _keep(found.light, prefix + name, page)
        if prefix:  # the same colours as on the pages of the small service
            continue
        page.emulate_media(color_scheme="dark")
        _keep(found.dark, name, page, only=["color-contrast"])
        page.emulate_media(color_scheme="light")
    found.complaints += watched.complaints
    context.close()


def _keep(
    found: dict[str, list[str]], name: str, page: Page, only: Sequence[str] | None = None, part: str = "html"
) -> None:
    """What axe, which the page holds, finds there, however mild; by all of its rules, or `only` some."""
    options = {"resultTypes": ["violations"], **({"runOnly": only} if only else {})}
    broken = page.evaluate("asked => axe.run(...asked)", [part, options])["violations"]
    if broken:
        found[name] = [f"{one['id']} ({one['impact']}): {node['target']}" for one in broken for node in one["nodes"]]


def test_no_page_complains_or_asks_another_host(walked: Walked) -> None:
    assert walked.complaints == []


def test_axe_finds_nothing_on_any_page(walked: Walked) -> None:
    assert walked.light == {}


def test_nothing_lacks_contrast_in_the_dark(walked: Walked) -> None:
    assert walked.dark == {}


def test_nothing_scrolls_sideways_at_360_pixels(walked: Walked) -> None:
    assert walked.sideways == []


def test_a_question_is_asked_the_answer_read_and_its_commands_copied(context: BrowserContext, page: Page) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/")
    fields = page.locator("summary", has_text="Every field of the question")
    fields.click()
    form = page.get_by_role("group", name="A new instance")
    form.get_by_label("Name").fill("shop-8")
    form.get_by_label("Workload").select_option("web-1k")
    form.get_by_label("vCPUs").fill("1")
    form.get_by_label("Relative throughput at least").fill("0.9")
    form.get_by_label("Sensitive to").select_option("latency")
    form.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("heading", name="shop-8 should go to")).to_be_visible()
    fields.click()
    expect(form.get_by_label("Relative throughput at least")).to_have_value("0.9")  # the form keeps what was typed
    expect(page.get_by_role("article").first.get_by_role("row", name="shop-8 this instance")).to_be_visible()
    commands = page.locator("article details", has=page.locator("summary", has_text="Commands")).first
    commands.locator("summary").click()
    button = commands.get_by_role("button", name="Copy").first
    button.focus()
    page.keyboard.press("Enter")
    expect(commands.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied
    assert copied == commands.locator("pre").first.text_content()


def test_from_an_answer_to_the_host_and_to_an_instance(page: Page) -> None:
    page.goto("/?instance=render-1")
    page.get_by_role("article").first.get_by_role("heading").get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/hosts/h\d$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("h")
    page.goto("/instances/media-1")
    expect(page.get_by_role("heading", level=1)).to_contain_text("media-1")


def test_what_is_wrong_stands_beside_its_field_and_what_is_missing_is_reported(page: Page) -> None:
    page.goto("/?id=shop-8&vcpus=0")
    expect(page.get_by_role("alert")).to_contain_text("mend 1 field")
    page.get_by_role("alert").get_by_role("link", name="vcpus").click()
    expect(page.get_by_label("vCPUs")).to_have_accessible_description("is not a whole number from 1 to 4096")
    page.goto("/hosts/nowhere")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def test_what_a_report_has_folded_is_there_in_print(page: Page, small: Service) -> None:
    plan = small.advisor.plans.page(kind="capacity").items[0].id
    page.set_content(small.advisor.plans.report_html(plan))
    month = page.get_by_role("columnheader", name="Month", exact=True)
    expect(month).to_be_hidden()
    page.emulate_media(media="print")
    expect(month).to_be_visible()


def test_by_keyboard_alone_from_the_skip_link_to_an_answer(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    expect(line).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.type("render-1")
    page.keyboard.press("Enter")
    expect(page.locator("#answer h2").first).to_contain_text("render-1")


def test_one_line_asks_about_a_new_instance_and_a_host_of_the_answer_is_opened(page: Page) -> None:
    page.goto("/")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    line.fill("1 vCPU, 2 GB, like render-1")
    line.press("Enter")
    expect(page.get_by_role("heading", name="new-instance should go to")).to_be_visible()
    expect(page.get_by_role("table", name="The ranked hosts at a glance")).to_be_visible()
    second = page.get_by_role("article").nth(1)
    expect(second.get_by_role("row", name="new-instance this instance")).to_be_hidden()
    second.locator("summary").first.click()
    expect(second.get_by_role("row", name="new-instance this instance")).to_be_visible()


def test_the_line_is_completed_by_keyboard_and_by_mouse(page: Page) -> None:
    page.goto("/")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    options = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    line.press_sequentially("1 v")
    expect(options).to_have_count(1)
    expect(line).to_have_attribute("aria-expanded", "true")
    line.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    assert line.get_attribute("aria-activedescendant") == options.first.get_attribute("id")
    page.evaluate(AXE)
    assert page.evaluate("axe.run(document)")["violations"] == []
    line.press("Enter")
    expect(line).to_have_value("1 vCPUs")
    expect(line).to_have_attribute("aria-expanded", "false")
    line.press_sequentially(", 2 GB, like render")
    expect(options.first).to_contain_text("like render-1")
    line.press("Escape")
    expect(options).to_have_count(0)
    expect(line).to_have_value("1 vCPUs, 2 GB, like render")
    line.press("ArrowDown")
    options.first.click()
    expect(line).to_have_value("1 vCPUs, 2 GB, like render-1")
    expect(line).to_be_focused()
    line.press("Enter")
    expect(page.get_by_role("heading", name="new-instance should go to")).to_be_visible()


def test_the_word_under_the_cursor_is_replaced_and_the_rest_stays(page: Page) -> None:
    page.goto("/?ask=like+render-1,+2+GB")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    line.evaluate("field => { field.focus(); field.setSelectionRange(8, 8); }")
    line.press("ArrowDown")
    options = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    options.nth(1).click()
    expect(line).to_have_value("like render-2, 2 GB")


def test_names_of_every_character_stay_text_in_suggestions(page: Page) -> None:
    hostile = "</li><img src=x onerror=alert(1)>\"' &amp; \u202e\U0001f600"
    reported = {"before": "like \U0001f600, ", "items": [{"text": hostile, "about": hostile}]}
    page.route("**/suggestions?*", lambda route: route.fulfill(json=reported))
    page.goto("/")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    line.press_sequentially("x")
    option = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    expect(option).to_contain_text(hostile)
    assert option.locator("img").count() == 0
    option.click()
    expect(line).to_have_value(f"like \U0001f600, {hostile}")


def test_without_an_answer_the_line_is_a_field_as_before(page: Page) -> None:
    page.route("**/suggestions?*", lambda route: route.abort())
    page.goto("/")
    line = page.get_by_role("combobox", name="An instance, or what a new one is")
    with page.expect_request("**/suggestions?*"):
        line.press_sequentially("render-1")
    line.press("Enter")
    expect(page.locator("#answer h2").first).to_contain_text("render-1")


def test_without_a_script_everything_but_copying_works(
    browser: Browser, small: Service, signed_in: StorageState
) -> None:
    context = browser.new_context(base_url=small.url, storage_state=signed_in, java_script_enabled=False)
    page = context.new_page()
    page.goto("/?instance=render-1")
    expect(page.locator("#answer h2").first).to_contain_text("render-1")
    offered = page.locator("#ask").evaluate("field => [...field.list.options].map(one => one.value)")
    assert "render-1" in offered
    page.goto("/plans/new?kind=rebalance")
    page.get_by_role("button", name="Make the plan").click()
    expect(
        page.get_by_role("heading", name="The cloud before and after").or_(page.get_by_text("Made (UTC)"))
    ).to_be_visible()
    context.close()


def test_signing_in_leads_back_and_signing_out_ends_it(browser: Browser, small: Service) -> None:
    context = browser.new_context(base_url=small.url)
    page = context.new_page()
    page.goto("/models")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Token").fill("no such token")
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.get_by_label("Token").fill(small.secrets["read"])
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{small.url}/models")
    expect(page.get_by_role("link", name="Activate")).to_have_count(0)  # that needs another scope
    held = context.cookies()
    page.get_by_role("button", name="Sign out").click()
    context.add_cookies(held)  # type: ignore[arg-type]
    page.goto("/models")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    context.close()


def test_a_plan_is_asked_for_read_compared_and_taken_away(page: Page, tmp_path: Path) -> None:
    page.goto("/plans")
    page.get_by_role("link", name="Evacuate").first.click()
    page.get_by_label("Hosts to empty").fill("nowhere")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("alert")).to_contain_text("The plan was not made")
    page.get_by_label("Hosts to empty").fill("h5")
    page.get_by_label("Lowest relative throughput").fill("0.5")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("h5")
    expect(page.get_by_role("heading", name="Stage 1")).to_be_visible()
    for link, check in (("Download the report", "<!doctype html>"), ("Download the data", '"steps"')):
        with page.expect_download() as download:
            page.get_by_role("link", name=link).click()
        download.value.save_as(tmp_path / "taken")
        assert check in (tmp_path / "taken").read_text()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Two plans")).to_be_visible()


def test_a_plan_of_an_earlier_cloud_is_marked_stale(page: Page, small: Service) -> None:
    host = small.advisor.inventory.host("h6")
    small.advisor.inventory.put_host(replace(host, labels={**host.labels, "seen": "again"}))
    page.goto(f"/plans/{small.advisor.plans.page(kind='admit').items[0].id}")
    expect(page.get_by_role("status")).to_contain_text("Stale.")
    expect(page.get_by_role("status")).to_contain_text("h6")


def test_who_answers_changes_only_after_a_question_and_can_be_taken_back(page: Page, small: Service) -> None:
    page.goto("/models")
    page.get_by_role("row", name="m-bad").get_by_role("link", name="Activate").click()
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("alert")).to_contain_text("refused by the gate")
    assert small.advisor.models.get("m-good").status == "active"
    page.get_by_label("although the gate refuses").check()
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("row", name="m-bad answers")).to_be_visible()
    page.get_by_role("row", name="m-bad answers").get_by_role("link", name="Roll back").click()
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("row", name="m-good answers")).to_be_visible()


@pytest.fixture
def crowded(browser: Browser, large: Service) -> Iterator[Page]:
    context = browser.new_context(base_url=large.url)
    page = context.new_page()
    watched = chromium.Watched(page, large.url)
    yield page
    context.close()
    assert watched.complaints == []


def test_a_thousand_hosts_are_shown_and_asked_about(crowded: Page) -> None:
    crowded.goto("/cloud")
    expect(crowded.locator("main a[href^='/hosts/']").first).to_be_visible()
    crowded.goto("/?id=shop-8&workload=web-1k&vcpus=1&memory_mb=2048")
    expect(crowded.get_by_role("heading", name="shop-8 should go to")).to_be_visible()
    crowded.goto("/plans/new?kind=evacuate")
    crowded.set_viewport_size({"width": 360, "height": 740})
    assert not crowded.evaluate(SIDEWAYS)


def test_a_demonstration_refreshes_itself_but_not_a_page_in_use(browser: Browser, tmp_path: Path) -> None:
    with demonstrated(tmp_path) as service:
        context = browser.new_context(base_url=service.url)
        page = context.new_page()
        watched = chromium.Watched(page, service.url)
        page.goto("/")
        expect(page.get_by_text("a second is two minutes")).to_be_visible()
        page.get_by_label("An instance, or what a new one is").fill("4 vCPUs")  # a question that is being typed
        service.advisor.inventory.put_host(Host("h-new", "lxc", 8, 65536))
        expect(page.locator("a[href='/hosts/h-new']")).to_be_visible()
        expect(page.get_by_label("An instance, or what a new one is")).to_have_value("4 vCPUs")
        page.locator("a[href='/hosts/h-new']").focus()  # who walks through the hosts with the keyboard
        with page.expect_response("**/"):  # nothing is fetched while the focus is there …
            service.advisor.inventory.put_host(Host("h-newer", "lxc", 8, 65536))
            page.wait_for_timeout(5000)
            assert page.locator("a[href='/hosts/h-newer']").count() == 0
            page.get_by_label("An instance, or what a new one is").focus()  # … and then it is
        expect(page.locator("a[href='/hosts/h-newer']")).to_be_visible()
        assert not page.evaluate(SIDEWAYS)
        context.close()
        assert watched.complaints == []


@pytest.mark.parametrize(
    ("method", "scope", "says"),
    [("GET", "read", "200 OK"), ("GET", None, "401 Unauthorized"), ("DELETE", "read", "403 Forbidden")],
    ids=str,
)
def test_a_request_is_tried_on_the_page_of_the_api(
    page: Page, small: Service, method: str, scope: str | None, says: str
) -> None:
    page.goto("/docs")
    if scope:
        page.get_by_label("Authorize with a token").fill(small.secrets[scope])
    form = page.locator(f'form[data-method="{method}"][data-path="/v1/hosts/{{host}}"]')
    page.locator("details.try", has=form).locator("summary").click()
    form.get_by_label("host", exact=True).fill("h4")
    form.get_by_role("button", name="Execute").click()
    expect(form.get_by_role("status")).to_have_text(says)
    answer = form.get_by_role("region", name=f"Answer of {method} /v1/hosts/{{host}}")
    expect(answer).to_contain_text('"id": "h4"' if says == "200 OK" else '"code": "auth.')
    assert small.secrets["read"] not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")


def test_a_question_is_tried_with_a_body_of_one_s_own(page: Page, small: Service) -> None:
    page.goto("/docs")
    page.get_by_label("Authorize with a token").fill(small.secrets["read"])
    form = page.locator('form[data-method="POST"][data-path="/v1/placements"]')
    page.locator("details.try", has=form).locator("summary").click()
    body = form.get_by_label("Body")
    body.fill('{"instance": {"id": "tried", "vcpus": 1, "memory_mb": 512}, "dry_run": true}')
    form.get_by_role("button", name="Execute").click()
    expect(form.get_by_role("status")).to_have_text("200 OK")
    expect(form.get_by_role("region", name="Answer of POST /v1/placements")).to_contain_text('"dry_run": true')
    if folder := os.environ.get("COTENANT_TEST_SCREENSHOTS"):
        page.locator("article", has=form).screenshot(path=Path(folder) / "docs-tried.png")
    found: dict[str, list[str]] = {}
    page.evaluate(AXE)
    _keep(found, "light", page, part="details[open]")
    page.emulate_media(color_scheme="dark")
    _keep(found, "dark", page, only=["color-contrast"], part="details[open]")
    assert found == {}
    page.set_viewport_size({"width": 360, "height": 740})
    assert not page.evaluate(SIDEWAYS)
