"""The table of left-out campaigns: what a row holds, what is beyond noise, and that plain methods are what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.arrays import Floats
from models.data.dataset import Dataset, load_dataset
from models.features.examples import build_examples
from profiler.metrics import EIGHT
from research.benchmarks import left_out_campaigns, plain_methods
from research.benchmarks.left_out_campaigns import ANALYTIC, PRODUCT, LeftOutRow, ablation, left_out, table, without
from research.benchmarks.plain_methods import PlainMethod, RatioRows
from tests.models.made_examples import made_up
from tests.models.made_models import limit_trees
from tests.models.synthetic import World


def cells(text: str, first: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {first}"))
    return [cell.strip() for cell in line.strip("| ").split("|")]


def rows(analytic: float, product: float, plain: float, pairs: int = 12) -> list[LeftOutRow]:
    """A campaign of so many pairs, each measured as 0.5 and predicted off by these."""
    reported = {ANALYTIC: 0.5 + analytic, PRODUCT: 0.5 + product, "plain": 0.5 + plain}
    return [LeftOutRow("c", f"c/{at}", f"c/{at}", 0.5, 0.4, 0.6, dict(reported)) for at in range(pairs)]


def test_errors_and_what_is_beyond_noise() -> None:
    found = table(rows(0.2, -0.05, 0.1))
    assert cells(found, "`c`") == [
        "`c`", "12, 12", "0.200", "0.050", "-0.150 (-0.150 to -0.150)", "", "100%", "0.100+",
    ]  # fmt: skip
    assert "1 better, 0 worse, 0 within noise" in found
    assert "0.100*" in table(rows(0.2, 0.3, 0.1))
    assert "0 better, 0 worse, 1 within noise" in table(rows(0.2, 0.1, 0.1, pairs=1))


def test_what_a_metric_is_worth_is_the_error_without_it_less_the_error_with_it() -> None:
    more = {f"{ANALYTIC} without {one.name}": 0.7 for one in EIGHT} | {f"without {one.name}": 0.6 for one in EIGHT}
    found = ablation([replace(row, expected=row.expected | more) for row in rows(0.2, 0.02, 0.0)])
    assert cells(found, "`cpu`")[4:] == ["+0.0800 (+0.0800 to +0.0800)", "1: c", "0"]


@pytest.fixture
def worlds(tmp_path: Path) -> list[Dataset]:
    return [load_dataset(World(4, seed=seed).tables().write(tmp_path / f"d{seed}")) for seed in range(3)]


def test_a_campaign_is_predicted_by_what_others_taught(worlds: list[Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    limit_trees(monkeypatch, 5, boosters=2)
    found = left_out(worlds[:2], worlds[2], plain=("mean by pair",))
    examples = build_examples([worlds[2]], ())
    assert len(found) == len({key.rsplit("/", 2)[0] + key.rpartition("/")[2] for key in examples.key})
    assert {row.campaign for row in found} == {"d2"}
    assert set(found[0].expected) == {ANALYTIC, PRODUCT, "mean by pair"}
    learned, asked = build_examples(worlds[:2], ()), next(row for row in found if row.key == "d2/p1/0.0-1-2/vm0")
    seen = np.array(
        [(victim, pair) == ("w1", "w1+w2") for victim, pair in zip(learned.victim, learned.pair, strict=True)]
    )
    assert asked.expected["mean by pair"] == pytest.approx(
        np.exp(np.log(learned.ratio[seen]).reshape(2, 2).mean(1)).mean()
    )


def test_a_metric_that_is_left_out_is_gone_from_all_scopes(worlds: list[Dataset]) -> None:
    one = worlds[0]
    profiles = tuple(replace(it, metrics={**it.metrics, "driver_domain.cpu": 1.0}) for it in one.profiles)
    left = without(replace(one, profiles=profiles), "cpu").profiles
    assert {key for profile in left for key in profile.metrics} == {"llc_misses", "mem_reads", "noise"}


def test_a_setting_is_chosen_by_campaigns_that_were_left_out() -> None:
    """Three campaigns with ratios of their own: what fits all rows best (their own mean) is not what carries over."""
    examples = made_up([("a", "b")] * 9, np.repeat([0.2, 0.5, 0.8], 3), platform=np.repeat(["p", "q", "r"], 3).tolist())
    rows = RatioRows.of(replace(examples, campaign=examples.platform))
    asked: list[Sequence[float]] = []

    def mixed(own: float, mean: float) -> Callable[[RatioRows], Floats]:
        return lambda test: np.full(len(test.ratio), own * mean + (1 - own) * 0.5)

    def fits(part: RatioRows, grid: Sequence[float]) -> Iterator[Callable[[RatioRows], Floats]]:
        asked.append(grid)
        for own in grid:
            yield mixed(own, float(part.ratio.mean()))

    reported = PlainMethod(fits, (1.0, 0.0)).tuned(rows)(rows)
    assert asked[-1] == [0.0]
    assert reported == pytest.approx(0.5)


def test_the_mean_by_pair_falls_back_to_the_victim_and_to_all() -> None:
    rows = RatioRows.of(made_up([("a", "b"), ("a", "c"), ("d", "b")], np.array([0.2, 0.4, 0.9])))
    asked = RatioRows.of(made_up([("a", "b"), ("a", "x"), ("x", "b")]))
    reported = plain_methods.METHODS["mean by pair"].tuned(rows)(asked)
    assert reported == pytest.approx([0.2, 0.3, 0.5])


def test_hidden_campaigns_and_tables_without_ratios_are_not_judged() -> None:
    names = {one.name for one in left_out_campaigns.campaigns()}
    assert {"lab-pairs", "lab-neighbours", "papers", "lab-findings"} <= names
    assert not {"lab-mixes-xeon-2cpu", "lab-pairs-unpinned-xeon-2cpu", "lab-xen-tables"} & names
