"""Evenings of new VMs: who comes, what simple policies choose, and what the figures say, without any run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from research.arena.evenings import HOSTS, KINDS, MOST, NEW_VMS, RESIDENTS, VCPUS, draw
from research.benchmarks.newcomer_runs import FURTHER, OURS, POLICIES, Loads, choose, figures, plan, table


@dataclass
class Placed:
    """Hosts with names on them, as a policy sees them."""

    names: dict[int, list[str]] = field(default_factory=dict)
    used_mb: Mapping[int, float] = field(default_factory=dict)

    def there(self, host: int) -> list[str]:
        return self.names.get(host, [])

    def free_mb(self, host: int) -> float:
        return 16_384.0 - self.used_mb.get(host, 0.0)


def chosen(policy: str, hosts: Placed, loads: Loads) -> int:
    return choose(policy, hosts, loads, 1024.0, np.random.default_rng(1))  # type: ignore[arg-type]


def test_a_world_has_every_kind_and_is_the_same_each_time() -> None:
    one, again, other = draw(0, 0), draw(0, 0), draw(0, 1)
    assert {each.kind for each in one.residents} == {each.kind for each in one.new_vms} == set(KINDS)
    assert (len(one.residents), len(one.new_vms), len(one.host_of)) == (RESIDENTS, NEW_VMS, RESIDENTS)
    assert max(np.bincount(one.host_of)) < MOST
    for mine, same in zip(one.new_vms, again.new_vms, strict=True):
        assert np.array_equal(mine.demand(24.0, 0.5, 48), same.demand(24.0, 0.5, 48))
    assert [each.name for each in one.residents] == [each.name for each in other.residents]
    assert [each.curve.mean() for each in one.new_vms] != [each.curve.mean() for each in other.new_vms]


def test_days_of_a_container_are_alike_and_not_equal() -> None:
    web = next(each for each in draw(0, 0).residents if each.kind == "web")
    first, second = (web.demand(24.0 * day, 24 / 48, 48) for day in (1, 2))
    assert 0.3 < np.corrcoef(first, second)[0, 1] < 0.999
    assert first[26] + first[27] > 2 * (first[4] + first[5])  # by day and at night
    assert first.max() <= VCPUS


def test_each_simple_policy_chooses_what_it_says() -> None:
    everywhere = Placed({host: [f"x-{host}"] * 3 for host in range(HOSTS)})
    everywhere.names[4] = ["y"]
    assert chosen("Nova's weighers", everywhere, Loads()) == 4
    loads = Loads()
    for _ in range(20):
        loads.see({f"h{host}": {f"x-{host}": 0.5} for host in range(HOSTS)})
    for _ in range(6):
        loads.see({f"h{host}": {f"x-{host}": 0.1 if host == 7 else 0.5} for host in range(HOSTS)})
    assert chosen("least loaded now", everywhere, loads) == 7
    loads.used["x-2"] = [0.05] * 26
    everywhere.names[4] = ["y", "x-3"]
    loads.used["y"] = [1.0]
    assert chosen("least loaded", everywhere, loads) == 2


def test_a_full_host_takes_no_instance() -> None:
    full = Placed({host: ["x"] * MOST for host in range(HOSTS) if host != 3})
    assert {chosen(policy, full, Loads()) for policy in (*POLICIES, *FURTHER) if policy != OURS} == {3}
    no_memory = Placed(used_mb={host: 16_384.0 for host in range(HOSTS) if host != 5})
    assert chosen("random", no_memory, Loads()) == 5


def test_every_policy_gets_every_evening_and_the_further_ones_come_last() -> None:
    runs = plan((0, 5), 3)
    assert len(set(runs)) == len(runs) == 2 * 3 * (len(POLICIES) + len(FURTHER))
    assert {policy for *_, policy in runs[-6:]} == set(FURTHER)


def record(world: int, policy: str, lost: float, *, disturbed: bool = False) -> dict[str, Any]:
    one = {"run_s": 1.0 - lost, "wait_s": lost, "share": 1.0 - lost, "short_100ms": lost, "resident": True}
    idle = {"run_s": 0.0, "wait_s": 0.0, "share": None, "short_100ms": 0.0, "resident": True}
    return {
        "world": world, "set": 0, "policy": policy, "disturbed": disturbed,
        "containers": {"a": one, "b": {**one, "resident": False}, "idle": idle},
    }  # fmt: skip


def test_the_table_compares_the_same_evenings_and_leaves_out_disturbed_ones() -> None:
    assert figures(record(0, OURS, 0.2)) == pytest.approx(
        {"lost": 0.2, "short": 0.2, "victims_lost": 0.2, "victims_short": 0.2}
    )
    reported = table([
        record(0, OURS, 0.1), record(1, OURS, 0.2), record(0, "random", 0.3), record(1, "random", 0.4),
        record(2, "random", 0.9, disturbed=True),
    ])  # fmt: skip
    assert "| random | 2 | 35.0 (ours 20.0 [20.0, 20.0] less)" in reported
    assert "| Cotenant | 2 | 15.0 |" in reported
