"""The pictures of pages in README and docs, made anew: `python tests/browser/doc_pictures.py OUT [NAME...]`.

`home` and `page` are of examples/kvm-64.yaml without a learned model, `host` and `demo` of the recorded day of
`cotenant demo --replay` in its evening, `lab` of datasets/lab-colocations, and `plan` of examples/cloud.yaml, answered
by the newest model below COTENANT_STATE_DIR, as `make run` leaves it there. `python -m research.benchmarks.placement
--chart` draws placement.png.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from advisor.offline import load_inventory  # noqa: E402
from advisor.service import Advisor  # noqa: E402
from advisor.settings import Settings  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.servers.running import free_port  # noqa: E402
from tests.servers.service import COTENANT, Service  # noqa: E402

QUESTION = "4 vCPUs, 8 GB, like db-32"
COLOURS = 128
EVENING = "18:"  # how the lines of that hour begin


@contextmanager
def opened(browser: Browser, width: int, height: int) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
    yield context.new_page()
    context.close()


@contextmanager
def cloud_of_64() -> Iterator[str]:
    """The address of a service with the made-up cloud of four hosts."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=Path(folder))
        with Advisor(settings) as advisor:
            advisor.inventory.put(load_inventory(ROOT / "examples/kvm-64.yaml"), mode="replace", generation=None)
        service = Service(settings.database, Path(folder), log_level="warning").start()
        try:
            yield service.url
        finally:
            service.running.stop()


@contextmanager
def recorded_day() -> Iterator[str]:
    """The address of the demonstration when its day has come to the evening."""
    port = free_port()
    argv = [str(COTENANT), "demo", "--replay", "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            if not any(line.startswith(EVENING) for line in demo.stdout):
                raise SystemExit("the demonstration ended before its evening")
            yield f"http://127.0.0.1:{port}"
        finally:
            demo.terminate()
            demo.stdout.read()


def home(browser: Browser, out: Path) -> None:
    with cloud_of_64() as url, opened(browser, 1280, 860) as page:
        page.goto(url)
        page.screenshot(path=out / "home.png")


def answer(browser: Browser, out: Path) -> None:
    with cloud_of_64() as url, opened(browser, 1280, 860) as page:
        page.goto(url)
        page.fill("#ask", QUESTION)
        page.keyboard.press("Escape")
        page.click("main button")
        page.wait_for_load_state()
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=out / "page.png")


def day(browser: Browser, out: Path) -> None:
    with recorded_day() as url:
        with opened(browser, 1280, 900) as page:
            page.goto(f"{url}/hosts/h1?since=24h")
            page.screenshot(path=out / "demo.png", full_page=True)
        with opened(browser, 1000, 900) as page:
            page.goto(f"{url}/hosts/h1?since=24h#measured")
            top = page.locator("#measured").bounding_box()
            assert top is not None
            y = top["y"] + page.evaluate("window.scrollY")
            clip = {"x": 0.0, "y": y, "width": 1000.0, "height": 564.0}  # two rows of charts
            page.screenshot(path=out / "host.png", full_page=True, clip=clip)  # type: ignore[arg-type]


def report(browser: Browser, out: Path, height: int, argv: list[str]) -> None:
    """The first screens of a report that a program writes to the file whose name its last option takes."""
    with tempfile.TemporaryDirectory() as folder, opened(browser, 1100, height) as page:
        made = Path(folder) / "report.html"
        done = subprocess.run([*argv, "--report", made], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        if done.returncode not in {0, 3}:  # 3: a plan that leaves an instance out
            raise SystemExit(f"{argv[0]} ended with {done.returncode}")
        page.goto(made.as_uri())
        page.screenshot(path=out)


def plan(browser: Browser, out: Path) -> None:
    argv = [str(COTENANT), "plan", "examples/cloud.yaml", "--add", "examples/new-vms.yaml"]
    report(browser, out / "plan.png", 2140, argv)


def lab(browser: Browser, out: Path) -> None:
    argv = [str(COTENANT.with_name("cotenant-lab")), "show", "datasets/lab-colocations"]
    report(browser, out / "lab.png", 1600, argv)


PICTURES: dict[str, Callable[[Browser, Path], None]] = {
    "home": home, "page": answer, "demo": day, "plan": plan, "lab": lab,
}  # fmt: skip


def main(out: Path, only: list[str]) -> None:
    """Make all pictures, or those of `only`, in few colours; `demo` makes `host`, too."""
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        for name, made in PICTURES.items():
            if not only or name in only:
                made(browser, out)
        browser.close()
    for path in out.glob("*.png"):
        with Image.open(path) as picture:
            few = picture if picture.mode == "P" else picture.convert("RGB").quantize(COLOURS)
        few.save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
