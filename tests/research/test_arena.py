"""One arena: a rule that is added to the registry takes part in every comparison whose world knows its columns."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.replay.packed_cloud import RulePolicy
from advisor.scheduling import rules as registry
from advisor.scheduling.rules import Rule
from models.physics.prior import PriorPredictor
from research.arena.contest import interval, played, with_interval
from research.arena.evenings import Evening, draw
from research.arena.measured_policies import rules as measured_rules
from research.benchmarks import newcomer_choices, newcomers
from tests.research.test_clouds import world


def test_a_rule_in_the_registry_takes_part_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        registry.RULES, "last fit", Rule(("free_vcpus",), lambda vcpus: np.arange(len(vcpus), dtype=np.float64))
    )

    for policies in (
        newcomers.policies(PriorPredictor()),
        newcomer_choices.policies(),
        measured_rules(world()),
        registry.known_by(RulePolicy.COLUMNS),
    ):
        assert "last fit" in policies
    evening = draw(0, 0)
    chosen = newcomer_choices.policies()["last fit"](evening)
    assert chosen[0] == 9
    assert played([evening], {"last fit": lambda _: chosen}) == {"last fit": [evening.judged(chosen)]}


def test_a_world_that_lacks_a_column_leaves_out_the_rules_that_need_it() -> None:
    assert "day" in Evening.columns
    assert not {"least loaded now", "peak oracle"} & newcomer_choices.policies().keys()
    assert not {name for name in measured_rules(world(), settings=True) if name.startswith("greedy")}


def test_an_interval_holds_the_mean_and_is_narrower_at_a_lower_level() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    wide, narrow = interval(values), interval(values, percent=50.0)
    assert wide is not None and narrow is not None
    assert wide[0] < narrow[0] < 4.0 < narrow[1] < wide[1]
    assert with_interval([2.0, 2.0]) == "2.0 (2.0 to 2.0)"
