"""Stays: who is where since when, looked at in turn, and forgotten when they are old or many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import MoveSeen
from advisor.store import stays
from advisor.store.engine import Database
from advisor.store.stays import Stay

REPORTED = {"like": "web"}


def test_who_waits_longest_is_looked_at_first_and_a_window_counts_once(database: Database) -> None:
    some = [Stay(f"i{at}", 1000.0 + at, f"h{at % 3}", None, 1000.0 + at, None, REPORTED) for at in range(6)]
    with database.write() as connection:
        old, late = Stay("old", stays.BEFORE, "h9"), Stay("late", 5000.0, "h0", None, 0.0, None, REPORTED)
        stays.begin(connection, [*some, old, late])
        assert stays.change(connection)["i4"] == "h1"
        assert stays.hosts_to_look_at(connection, 0.0, 1500.0, 2) == ["h0", "h1"]
        assert stays.looked(connection, some[0], 1500.0, {"n": 1})
        assert not stays.looked(connection, some[0], 1500.0, {"n": 2}), "another process was faster"
        (left,) = stays.to_look_at(connection, "h0", 0.0, 1500.0)
        assert left == some[3]
        assert stays.hosts_to_look_at(connection, 0.0, 1500.0, 9) == ["h1", "h2", "h0"]
        (first,) = (one for one in stays.since(connection, 0.0) if one.instance == "i0")
        assert first == replace(some[0], looked_s=1500.0, fared={"n": 1})


def test_who_left_long_ago_or_long_before_others_is_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stays, "MOST_ENDED", 2)
    some = [Stay(f"i{at}", 1000.0, "h0", None, 0.0, None, REPORTED) for at in range(5)]
    with database.write() as connection:
        stays.begin(connection, [*some, Stay("old", stays.BEFORE, "h0")])
        for at in range(4):
            stays.end(connection, [f"i{at}"], 2000.0 + at)
        stays.end(connection, ["old"], 2000.0)
        assert stays.reopen(connection, replace(some[3], since_s=9.0), 2003.0)
        assert not stays.reopen(connection, some[2], 2003.0)
        stays.end(connection, ["i3"], 2003.0)
        stays.expire(connection, 2001.0)
        assert {one.instance for one in stays.since(connection, 0.0)} == {"i2", "i3"}
        assert stays.seats(connection) == {"i4": "h0"}, "it is there still, but nothing else is known of it any more"


def test_moves_are_stays_of_one_instance_on_different_hosts(database: Database) -> None:
    with database.write() as connection:
        stays.begin(connection, [Stay(name, stays.BEFORE, "h1") for name in ("mover", "back", "stays", "gone")])
        stays.begin(connection, [Stay("came", 1000.0, "h1")])
        for name, at in (("mover", 2000.0), ("back", 2000.0)):
            stays.end(connection, [name], at)
            stays.begin(connection, [Stay(name, at, "h2")])
        stays.end(connection, ["back", "gone"], 2500.0)
        assert stays.reopen(connection, Stay("back", 0.0, "h1"), 1900.0)
        stays.end(connection, ["mover"], 3000.0)
        stays.begin(connection, [Stay("mover", 4000.0, "h3")])
        every = [
            MoveSeen("back", "h1", "h2", 2000.0),
            MoveSeen("mover", "h1", "h2", 2000.0),
            MoveSeen("back", "h2", "h1", 2500.0),
            MoveSeen("mover", "h2", "h3", 4000.0),
        ]
        for since_s in (0.0, 2000.0, 2000.1, 2600.0, 4000.1):
            assert list(stays.moves(connection, since_s)) == [move for move in every if move.at_s >= since_s]


def test_arrivals_and_departures_are_counted_since_the_last_look(database: Database) -> None:
    with database.write() as connection:
        assert stays.came_and_went(connection, 5000.0, 1e9) == (0, 0, 0.0)
        stays.begin(connection, [Stay(f"old{at}", stays.BEFORE, "h1") for at in range(5)])
        stays.begin(connection, [Stay(f"new{at}", 1000.0 * (at + 1), "h1") for at in range(3)])
        stays.end(connection, ["old0", "new0"], 3500.0)
        stays.end(connection, ["old1"], 2500.0)
        stays.begin(connection, [Stay("old1", 2500.0, "h2")])
        assert stays.came_and_went(connection, 5000.0, 1e9) == (3, 2, 4000.0)
        assert stays.came_and_went(connection, 5000.0, 2500.0) == (1, 2, 2500.0)
        assert stays.came_and_went(connection, 5000.0, 1000.0) == (0, 0, 1000.0)
