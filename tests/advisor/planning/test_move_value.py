"""What a move gains, and how sure that is: both states of a host are compared at the same edge of what is not known."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from advisor.planning.assignment.move_value import gain_between, is_worth_it
from advisor.planning.assignment.packing_problem import Goal
from advisor.planning.assignment.search_state import Losses, Pattern

GOAL = Goal("rebalance")
FEW: Losses = (0.0, 0.0, 0.02)


def host(**losses: Losses) -> Pattern:
    """A host with instances a to z, which are their own kinds."""
    kinds = tuple(sorted(ord(name) for name in losses))
    each = tuple(losses[chr(kind)] for kind in kinds)
    return Pattern(kinds, tuple(1 - loss[0] for loss in each), losses=each)


def test_what_is_not_known_of_a_host_before_and_after_does_not_make_its_relief_doubtful() -> None:
    before = [host(a=(0.2, 0.05, 0.5), b=(0.2, 0.05, 0.5)), host()]
    after = [host(a=FEW), host(b=FEW)]
    gain = gain_between(before, after)
    assert gain.expected == pytest.approx(0.2 + 0.3 * 0.2)
    assert 0 < gain.lower < gain.expected < gain.upper
    assert is_worth_it(gain, GOAL)


def test_a_move_that_may_do_more_harm_where_it_goes_than_good_where_it_leaves_is_not_made() -> None:
    before = [host(a=(0.2, 0.05, 0.5), b=(0.2, 0.05, 0.5)), host(c=FEW)]
    after = [host(a=FEW), host(b=(0.1, 0.0, 0.4), c=(0.1, 0.0, 0.4))]
    gain = gain_between(before, after)
    assert gain.expected > GOAL.move_gain
    assert gain.lower < 0
    assert not is_worth_it(gain, GOAL)


def test_instances_that_a_move_does_not_change_hide_no_gain_and_add_no_doubt() -> None:
    before, after = [host(a=(0.3, 0.1, 0.5), b=(0.3, 0.1, 0.5)), host()], [host(a=FEW), host(b=FEW)]
    held = (0.6, 0.2, 0.9)
    beside = [[host(a=(0.3, 0.1, 0.5), b=(0.3, 0.1, 0.5), h=held), host()], [host(a=FEW, h=held), host(b=FEW)]]
    alone, with_held = gain_between(before, after), gain_between(*beside)
    assert astuple(with_held) == pytest.approx(astuple(alone))


def test_many_who_lose_a_little_each_are_worth_a_move() -> None:
    crowd = {chr(97 + at): (0.009, 0.004, 0.02) for at in range(20)}
    left = {name: (0.0, 0.0, 0.0) for name in crowd if name != "a"}
    gain = gain_between([host(**crowd), host()], [host(**left), host(a=(0.0, 0.0, 0.0))])
    assert gain.expected == pytest.approx(0.3 * 20 * 0.009)
    assert is_worth_it(gain, GOAL)


def test_a_move_and_its_way_back_are_never_both_worth_it() -> None:
    before, after = [host(a=(0.2, 0.1, 0.4), b=(0.2, 0.1, 0.4)), host()], [host(a=FEW), host(b=FEW)]
    there, back = gain_between(before, after), gain_between(after, before)
    assert back.expected == pytest.approx(-there.expected)
    assert is_worth_it(there, GOAL)
    assert not is_worth_it(back, GOAL)
