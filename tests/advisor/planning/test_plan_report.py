"""The plan's report: its words, its tables, its pictures, and how it is written."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from planning_cases import cloud, effect, plan_by_hand, vm

from advisor.domain import Inventory, Plan, PlanStep, Rejection
from advisor.errors import InvalidInput, OutOfSpace
from advisor.reports import plan_as_html, write_plan_report

LOADING = {"script", "link", "iframe", "img", "object", "embed", "base", "form", "image"}
HOSTILE = (
    '<script>alert("1")</script>',
    "<img src=x onerror=alert(1)>",
    "$x^2$",
    "a&b",
    "{{ 7*7 }}",
    '"; font-family: "',
    "#0a0001",
)


class Page(HTMLParser):
    """Tags with their attributes, the text, and the rows of the tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._in_cell:
            self.rows[-1][-1] += data

    def said(self) -> str:
        return " ".join(" ".join(self.text).split())

    def cells(self, first: str) -> list[str]:
        rows = ([" ".join(cell.split()) for cell in row] for row in self.rows)
        return next(row for row in rows if row and first in row[:2])


def page(inventory: Inventory, plan: Plan) -> Page:
    return Page(plan_as_html(inventory, plan))


def test_the_summary_says_in_words_who_goes_where_who_pays_and_who_finds_no_place() -> None:
    said = page(*plan_by_hand()).said()
    for sentence in (
        "1 of 2 instances can be placed.",
        "shop-7 goes to h1.",
        "huge-1 finds no host: too little memory free on 2 hosts and no fresh data on 1 host.",
        "Before and after the plan the worst-off instance is bulk-1 on h2, predicted to reach 60 % of what it does",
        "1 of the 2 instances already there loses 1 percentage point or more.",
        "db-1 on h1 loses the most, from 95 % to 70 %.",
        "Predicted below the limit that was set for it: db-1.",
        "Some of the predictions lie outside of what the model was trained on",
        "v7. It was trained on measurements.",
        "2026-03-01 12:00 UTC",
    ):
        assert sentence in said


def test_a_step_says_host_prediction_neighbours_settings_and_reasons() -> None:
    cells = page(*plan_by_hand()).cells("shop-7")
    assert cells == [
        "1",
        "shop-7",
        "h1",
        "90 % 80–100 %",
        "db-1 95 % → 70 %",
        "vCPUs on pCPUs 0:1; cap 50 % of a CPU; weight 512; network shared, 200 up to 1000 Mbit/s",
        "Both want pCPU 1. As good within the interval: h2.",
    ]


def test_every_instance_stands_in_the_table_of_its_host_with_before_and_after() -> None:
    found = page(*plan_by_hand())
    assert ["h3 empty"] in [[" ".join(cell.split()) for cell in row] for row in found.rows]
    db = found.cells("db-1 below its limit of 80 %")
    assert db[1:4] == ["95 % 85–105 %", "70 % 60–80 %", "−25"]
    assert found.cells("shop-7 comes outside of the training data")[1] == "–"


def test_refusals_of_one_kind_stand_together_with_the_hosts_they_hold_for() -> None:
    inventory, plan = plan_by_hand()
    many = tuple(Rejection(f"h{n:02}", "capacity.memory", f"needs 9 MB, {n} MB free") for n in range(40))
    found = page(inventory, replace(plan, steps=(PlanStep("huge-1", None, None, many),)))
    assert "Too little memory free: h00, h01, h02 and 37 more hosts. needs 9 MB, 0 MB free" in found.said()
    assert "The instance cannot be placed." in found.said()


def test_the_file_asks_no_other_host_for_anything_and_runs_nothing() -> None:
    text = plan_as_html(*plan_by_hand())
    tags = Page(text).tags
    assert not {tag for tag, _ in tags} & LOADING
    for _, attributes in tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "data", "href")]
        assert (attributes.get("xlink:href") or "#").startswith("#")
    assert not re.search(r"https?:|@import|url\((?!#)", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    inventory, plan = plan_by_hand()
    steps = (replace(plan.steps[0], instance=name), replace(plan.steps[1], instance=name))
    after = {**plan.after, name: (effect(name, 0.5),), "h1": (*plan.after["h1"], effect(name, 0.8))}
    hostile = replace(plan, steps=steps, after=after, model_version=name, model_origin=name, id=name)
    text = plan_as_html(inventory, hostile)
    found, harmless = Page(text), Page(plan_as_html(inventory, plan))
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in harmless.tags}
    assert name in found.said()
    _check_pictures(text)


def test_pictures_are_well_formed_in_the_page_s_colours_and_their_ids_are_unique() -> None:
    pictures = _check_pictures(plan_as_html(*plan_by_hand()))
    assert len(pictures) == 1  # h1 is the only host that changes
    assert "shop-7" in pictures[0]
    assert "--new" in pictures[0]
    assert "--bad" in pictures[0]  # the limit of db-1


def _check_pictures(text: str) -> list[str]:
    pictures = re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL)
    for picture in pictures:
        ET.fromstring(picture.replace("xlink:href", "href"))
        assert "#0a00" not in picture
        assert not re.search(r"(?:fill|stroke): #(?!000000)", picture)
    ids = Counter(re.findall(r' id="([^"]*)"', text))
    assert all(count == 1 for count in ids.values())
    return pictures


def test_the_same_plan_gives_the_same_file_and_leaves_matplotlib_s_settings_alone() -> None:
    before = dict(mpl.rcParams)
    assert plan_as_html(*plan_by_hand()) == plan_as_html(*plan_by_hand())
    assert dict(mpl.rcParams) == before


def test_an_empty_plan_on_an_empty_cloud_is_a_report_too() -> None:
    _, plan = plan_by_hand()
    found = page(Inventory(), replace(plan, steps=(), before={}, after={}))
    assert "Nothing was to be placed." in found.said()


def test_an_instance_that_moves_is_said_to_come_from_its_former_host() -> None:
    _, plan = plan_by_hand()
    steps = (replace(plan.steps[0], instance="db-1", host="h2"),)
    after = {"h1": (), "h2": (effect("bulk-1", 0.6, 0.6), effect("db-1", 0.99, 0.95)), "h3": ()}
    found = page(cloud(vm("db-1", on="h1"), vm("bulk-1", on="h2")), replace(plan, steps=steps, after=after))
    assert found.cells("db-1")[2] == "h2 from h1"
    assert "db-1 goes" in found.said()
    assert "db-1 comes" in found.said()


def test_a_thousand_hosts_are_reported_in_seconds_with_pictures_of_the_worst_only() -> None:
    inventory, plan = plan_by_hand()
    names = [f"h{n:04}" for n in range(1000)]
    before = {host: tuple(effect(f"vm-{host}-{n}", 0.9) for n in range(8)) for host in names}
    after = {host: (*there, effect(f"new-{host}", 0.8)) for host, there in before.items()}
    steps = tuple(replace(plan.steps[0], instance=f"new-{host}", host=host) for host in names)
    started = time.monotonic()
    text = plan_as_html(inventory, replace(plan, steps=steps, before=before, after=after))
    assert time.monotonic() - started < 20
    assert text.count("<svg ") == 24
    assert "976 more hosts hold instances" in text
    assert "They go to 1000 hosts" in text


def test_a_former_report_is_replaced_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    path.write_text("former")
    write_plan_report(*plan_by_hand(), path)
    assert path.read_text().endswith("</html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("place", "words"),
    [("missing/plan.html", "does not exist"), ("", "not a regular file"), ("file/plan.html", "does not exist")],
)
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=words):
        write_plan_report(*plan_by_hand(), tmp_path / place)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_device_is_not_replaced_by_a_report() -> None:
    with pytest.raises(InvalidInput, match="not a regular file"):
        write_plan_report(*plan_by_hand(), Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_said_and_the_former_report_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.html"
    path.write_text("former")

    def full(_: Path, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutOfSpace, match="free some"):
        write_plan_report(*plan_by_hand(), path)
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, "former")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(tmp_path)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.lab
def test_a_really_full_disk_leaves_nothing_half_written(small_disk: Path) -> None:
    path = small_disk / "plan.html"
    path.write_text("former")
    with pytest.raises(OutOfSpace):
        write_plan_report(*plan_by_hand(), path)
    assert [(one, one.read_text()) for one in small_disk.iterdir()] == [(path, "former")]
