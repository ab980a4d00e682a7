"""A followed system whose rows are spoiled one after the other: each costs itself alone, whatever stands in it.

A test module of a system has a fixture `system`, and a class of tests that inherits these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain import Inventory
from advisor.inventories.reading import Reading
from advisor.service import Advisor
from tests.examples import examples

ODD: list[Any] = [
    None, -1, 0, 2.5, 1e300, 2**70, "", "many", "-3", "база/1 ☃", "x" * 5_000, "0-9999999", [], [[]], ["x", 1], {},
    {"a": []}, True, "0,,1", "\x1b[2J", "NaN", "1e999",
]  # fmt: skip
Rows = list[dict[str, Any]]


class System:
    """A stand-in of a system: `rows` may be spoiled in place, `read` reads all of it anew."""

    def __init__(self, rows: Callable[[], Rows], read: Callable[[], Reading]) -> None:
        self.rows, self.read = rows, read
        self.clean = copy.deepcopy(rows())

    def restore(self) -> None:
        for row, clean in zip(self.rows(), self.clean, strict=True):
            row.clear()
            row.update(copy.deepcopy(clean))


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the whole apart."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, inner in steps for place in [(*at, step), *_places(inner, (*at, step))]]


class BadRowRules:
    """Tests of a fixture `system`, beside a fixture `advisor`."""

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def test_one_bad_row_costs_that_row_alone(self, system: System, advisor: Advisor, data: st.DataObject) -> None:
        system.restore()
        clean = system.read()
        assert (clean.complete, len(clean.hosts) > 1, len(clean.instances) > 1) == (True, True, True)
        advisor.inventory.follow(clean)
        hosts_were = {host.id: host for host in advisor.cloud.inventory().hosts}
        were = {one.id: one for one in advisor.cloud.inventory().instances}
        rows = system.rows()
        row = rows[data.draw(st.integers(0, len(rows) - 1))]
        *steps, last = data.draw(st.sampled_from(_places(row)))
        target: Any = row
        for step in steps:
            target = target[step]
        if data.draw(st.booleans()) and isinstance(target, dict):
            del target[last]
        else:
            target[last] = data.draw(st.sampled_from(ODD))
        reading = system.read()
        advisor.inventory.follow(reading)
        assert {one.state for one in reading.parts} <= {"read", "failed"}
        now = {one.id: one for one in advisor.cloud.inventory().instances}
        hosts_now = {host.id: host for host in advisor.cloud.inventory().hosts}
        lost = [name for name in were if name not in now]
        assert len(lost) <= 1, (reading.left_out, lost)
        assert len([name for name in hosts_were if name not in hosts_now]) <= 1, reading.left_out
        advisor.inventory.put(Inventory(), mode="replace", generation=None)

    def test_no_field_of_a_wrong_type_keeps_a_read_from_coming(self, system: System) -> None:
        complete, tried = system.read(), set[tuple[str, ...]]()
        for at, row in enumerate(system.rows()):
            shape = tuple(sorted(row))
            for name in (
                () if shape in tried else sorted({*shape} - {"metadata"})[:: 1 + len(shape) // 8]
            ):  # which the stand-in itself needs
                system.rows()[at][name] = []
                reading = system.read()
                assert len(reading.parts) >= len(complete.parts)
                assert len(reading.hosts) >= len(complete.hosts) - 1
                system.restore()
            tried.add(shape)
