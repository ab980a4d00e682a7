"""The report of a replay: words that do not overclaim, every figure as data, hostile names escaped."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor import reports
from advisor.domain.replays import RatioSpread, Replay, Replayed
from advisor.reports.files import page as page_of
from advisor.reports.parts import cell
from advisor.reports.replay import _MOST_DRAWN, replay_report

SPREAD = RatioSpread((0.0, 0.01, 0.5, 1.0), (0.5, 0.7, 0.99, 1.0), (0.4, 0.6, 0.9, 1.0))


def policy(name: str, hosts: tuple[int, ...], below: tuple[int, ...]) -> Replayed:
    moments = 10 * len(hosts)
    return Replayed(
        name, hosts, sum(hosts) / len(hosts), below, tuple(0.5 for _ in hosts), moments, sum(below),
        sum(below) / moments, 0.5, 0.97, SPREAD, moves=3, refused=1, decisions=10, decision_s=0.5,
    )  # fmt: skip


def replay(moments: int = 4) -> Replay:
    ones = (1,) * moments
    return Replay(
        trace="week<1>.csv",
        form="csv",
        instances=10,
        steps=moments,
        interval_s=300.0,
        times_s=tuple(300.0 * at for at in range(moments)),
        hosts=6,
        host_type="kvm, <b>16</b> pCPUs",
        keep_ratio=0.8,
        seeds=(1,),
        assumptions=("Network and disk were <i>not</i> in the trace.",),
        model_version="analytic",
        model_origin="analytic",
        policies=(
            policy("cotenant", (3,) * moments, (0,) * moments),
            policy("first fit", (2,) * moments, ones),
            Replayed("lower bound", ones, 1.0),
        ),
        conclusion="By prediction cotenant needs one host more.",
        generated_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    )


def as_html(replay: Replay) -> str:
    return page_of(replay_report(replay), beside=False)


@pytest.mark.usefixtures("undrawn")
def test_the_headline_gives_both_figures_and_the_page_says_what_they_are() -> None:
    page = as_html(replay())
    headline = re.search(r'class="headline">(.*?)<', page)
    assert headline
    assert html.unescape(headline[1]).replace("\u00a0", " ") == (
        "Simulated: 0.0 % of instance-moments below the limit on 3.0 hosts (1 instance refused); "
        "first fit: 10.0 % on 2.0 hosts (1 instance refused)."
    )
    assert "fewer hosts no policy can take every instance and keep it at the limit" in page
    assert "and placements are simulated" in page
    assert "By prediction cotenant needs one host more." in page


@pytest.mark.usefixtures("undrawn")
def test_one_is_not_worded_as_many() -> None:
    page = as_html(replace(replay(1), instances=1))
    assert "<dd>1 instance over 1 moment of 300 s (0.1 hours)" in page


@pytest.mark.usefixtures("undrawn")
def test_of_two_that_are_alike_in_one_figure_the_better_in_the_other_is_named_and_all_is_said_as_a_percentage() -> None:
    every = policy("Nova's weighers", (4,) * 4, (10,) * 4)
    all_below = (every, replace(every, policy="random", hosts_mean=5.0))
    found = replace(replay(), policies=(replace(every, policy="cotenant", refused=0), *reversed(all_below)))
    headline = re.search(r'class="headline">(.*?)<', as_html(found))
    assert headline
    assert html.unescape(headline[1]).replace("\u00a0", " ") == (
        "Simulated: 100.0 % of instance-moments below the limit on 4.0 hosts; "
        "Nova's weighers: 100.0 % on 4.0 hosts (1 instance refused)."
    )


@pytest.mark.usefixtures("undrawn")
def test_a_judge_is_named_only_where_it_is_another_model() -> None:
    same, other, none = (
        as_html(replace(replay(), judge_version=judge, judge_origin="measured"))
        for judge in ("analytic", "v7", "fair shares")
    )
    assert "no model has a part in it</dd>" in none
    assert "<dt>Judge</dt><dd>the same model</dd>" in same
    assert "<dt>Judge</dt><dd>v7: trained on measurements.</dd>" in other


def test_names_and_sentences_from_outside_stay_text_and_the_same_replay_gives_the_same_page() -> None:
    page = as_html(replay())
    assert page == as_html(replay())
    for escaped in ("week&lt;1&gt;.csv", "&lt;b&gt;16", "&lt;i&gt;not"):
        assert escaped in page
    assert not re.search(r"<script|https?:|@import|url\((?!#)|\s(src|href)=\"(?!#)", page)


@pytest.mark.usefixtures("undrawn")
def test_the_lower_bound_has_hosts_and_no_ratios(tmp_path: Path) -> None:
    reports.write_replay_report(replay(), tmp_path / "out")
    with (tmp_path / "out" / "policies.csv").open(encoding="utf-8") as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert rows["lower bound"]["hosts_mean"] == "1.0"
    assert rows["lower bound"]["mean"] == rows["lower bound"]["violations"] == ""
    assert rows["first fit"]["violation_share"] == "0.1"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (2.84, "2.84"), (31_734.0, "31,734"), (0.0004015, "0.0004015"), (3e-5, "< 0.0001")]
)
def test_a_number_has_no_exponent_and_is_nothing_only_where_it_is(value: float, shown: str) -> None:
    assert cell(value, "number").text == shown


@pytest.mark.usefixtures("undrawn")
def test_every_moment_stands_in_the_data_and_the_page_says_what_it_leaves_out(tmp_path: Path) -> None:
    moments = 2 * _MOST_DRAWN + 1
    reports.write_replay_report(replay(moments), tmp_path / "out")
    reported = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["tables"]["over_time"]
    assert [row["hosts_in_use_cotenant"] for row in reported] == [3] * moments
    assert {key for key in reported[0] if key.startswith("below")} == {
        "below_the_limit_cotenant",
        "below_the_limit_first_fit",
    }
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert f"{moments - 100} more rows stand in over_time.csv" in page
    assert "of each stretch of 3 moments the highest" in page


def test_policies_whose_panel_would_be_flat_are_named_and_not_drawn() -> None:
    mine, _, bound = replay().policies
    page = as_html(replace(replay(), policies=(mine, policy("first fit", (2, 3, 2, 2), (1,) * 4), bound)))
    assert "The same number of hosts all the time: cotenant and lower bound." in page
    assert "No instance below the limit at any moment: cotenant." in page
    panels = re.findall(r"<svg (?:(?!</svg>).)*a panel per policy.*?</svg>", page, flags=re.DOTALL)
    assert len(panels) == 2
    assert all("first fit" in panel and "cotenant" not in panel for panel in panels)


@pytest.mark.parametrize("policies", [(), (Replayed("lower bound", (), 0.0),)])
def test_a_replay_of_nothing_is_a_report_too(policies: tuple[Replayed, ...]) -> None:
    empty = replace(replay(), policies=policies, times_s=(), steps=0, instances=0, seeds=())
    assert as_html(empty).rstrip().endswith("</html>")
