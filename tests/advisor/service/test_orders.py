"""Changes that the agent of a host carries out by signed orders: reached, silent, lying, and forged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, RolloutStanding
from advisor.errors import InvalidInput
from advisor.service import Advisor, SignedText, acting
from advisor.serving.orders import read_keys
from advisor.settings import Settings
from profiler.acting.actor import Actor
from profiler.acting.allowed import Allowed
from profiler.acting.group_files import GroupFiles
from profiler.acting.orders import Memory, Report, read_report, signed
from profiler.agent.http_client import HttpAnswer
from profiler.agent.loop import Log
from tests.advisor.changes.hierarchy import FILES
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.test_rollouts import plan_of, weigh, windows

KEY, OTHER = "k" * 40, "o" * 40


class AgentThere:
    """The agent of h1 in the place of a process on another machine; `lies` replaces what it reports."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.mounts = {}
        for controller, files in FILES[1].items():
            for name in ("shop", "batch"):
                group = folder / controller / f"lxc.payload.{name}"
                group.mkdir(parents=True)
                for file, text in files.items():
                    (group / file).write_text(text)
            self.mounts[controller] = str(folder / controller)
        self.advisor: Advisor
        self.silent_after = 10**9  # orders
        self.key = KEY
        self.lies: Mapping[str, Any] | None = None
        self.allowed = Allowed(("*",), 100, (1.0, 65_535.0))
        self.orders: list[Mapping[str, Any]] = []
        where = {name: ("control-groups", f"lxc.payload.{name}") for name in ("shop", "batch")}
        self.actor = Actor(
            "h1", self, KEY.encode(), lambda: self.allowed, Memory(folder / "orders.json"),
            {"control-groups": GroupFiles(self.mounts)}, where.get, Log(), lambda: clock().timestamp(),
        )  # fmt: skip

    def post(self, body: bytes, to: str = "") -> HttpAnswer:
        reports = [self.reported(one) for one in json.loads(body)["reports"]]
        found = self.advisor.orders.exchange("h1", reports)
        self.orders += [json.loads(one.text) for one in found]
        given = [{"text": one.text, "signature": one.signature} for one in found]
        return HttpAnswer(200, json.dumps({"orders": given}).encode(), None)

    def reported(self, one: Mapping[str, str]) -> SignedText:
        report = read_report(one["text"], one["signature"], KEY.encode())
        if self.lies is not None:
            report = Report(report.order, "done", report.before, self.lies)
        return SignedText(one["order"], *signed(report, self.key.encode()))

    def interrupt(self) -> None: ...
    def close(self) -> None: ...

    def wait(self, seconds: float) -> None:
        """Time passes for a controller that waits."""
        self.clock.turn(1.0)
        if len(self.orders) < self.silent_after:
            self.actor.step()
            self.actor.step()

    def shares(self) -> dict[str, str]:
        return {
            name: (self.folder / "cpu" / f"lxc.payload.{name}" / "cpu.shares").read_text().strip()
            for name in ("shop", "batch")
        }


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(f"# of agents\nh1 {KEY}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def settings(settings: Settings, keys: Path) -> Settings:
    return settings.model_copy(
        update={"apply_mode": "ask", "apply_here": "elsewhere", "apply_canary": False, "apply_measure_windows": 5,
                "apply_keys_file": keys}
    )  # fmt: skip


@pytest.fixture
def there(advisor: Advisor, clock: Clock, tmp_path: Path) -> Iterator[AgentThere]:
    hosts = tuple(Host(name, "lxc", pcpus=2, memory_mb=4096, labels={"cgroup_version": "1"}) for name in ("h1", "h2"))
    instances = tuple(Instance(name, vcpus=1, memory_mb=1, host="h1", workload="w") for name in ("shop", "batch"))
    alike = Instance("alike", vcpus=1, memory_mb=1, host="h2", workload="w")
    advisor.inventory.put(Inventory(hosts, (*instances, alike)), mode="replace", generation=None)
    agent = AgentThere(tmp_path / "groups", clock)
    agent.advisor = advisor
    advisor.orders._wait = agent.wait
    yield agent


STEPS = (weigh("shop", 1024), weigh("batch", 128))


def carried_out(advisor: Advisor, clock: Clock) -> RolloutStanding:
    windows(advisor, clock, 20, {"shop": 0.6, "batch": 0.9, "alike": 0.7})
    rollout = advisor.changes.of_plan(plan_of(advisor, clock, *STEPS))
    assert {change.executor for change in rollout.changes} == {"agent:control-groups"}
    advisor.changes.store(rollout)
    with acting("token:ann", "r1"):
        advisor.changes.approve(rollout.id)
    return advisor.changes.carry_out(rollout.id)


def test_the_agent_of_another_host_carries_a_rollout_out_and_takes_it_back(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    standing = carried_out(advisor, clock)
    assert standing.state == "carried_out", standing.why
    assert there.shares() == {"shop": "4096", "batch": "512"}
    assert [one.before for one in standing.changes] == [{"cpu.shares": "1024"}] * 2
    assert advisor.changes.undo(standing.rollout.id, "by hand").state == "taken_back"
    assert set(there.shares().values()) == {"1024"}
    with advisor._transactions.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM orders").scalar() == 0


def test_an_agent_that_falls_silent_ends_the_rollout_and_nothing_is_done_later(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    there.silent_after = 4  # read, set, read of the first change, and the first of the second
    standing = carried_out(advisor, clock)
    assert standing.state == "stopped"
    assert "did not report within 30 s" in standing.why
    assert standing.changes[0].state == "left"
    before = there.shares()
    there.silent_after = 10**9
    there.wait(1)
    assert there.shares() == before, "orders that were given up are gone"
    assert advisor.changes.undo(standing.rollout.id, "it is back").state == "taken_back"
    assert set(there.shares().values()) == {"1024"}


def test_a_clock_that_stands_still_ends_the_waiting_all_the_same(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    advisor.orders._wait = lambda seconds: None
    standing = carried_out(advisor, clock)
    assert "did not report within 30 s" in standing.why
    assert set(there.shares().values()) == {"1024"}


def test_a_report_that_another_key_signed_is_none(advisor: Advisor, clock: Clock, there: AgentThere) -> None:
    there.key = OTHER
    standing = carried_out(advisor, clock)
    assert standing.state == "taken_back", "nothing was begun"
    assert "not signed with its key" in standing.why


def test_what_the_host_does_not_allow_fails_the_rollout_and_is_taken_back(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    there.allowed = Allowed(("*",), 100, (200.0, 65_535.0))
    standing = carried_out(advisor, clock)
    assert standing.state == "taken_back"
    assert "outside of 200 to 65535" in standing.why
    assert set(there.shares().values()) == {"1024"}


def test_an_agent_that_only_says_so_is_found_out_by_the_windows(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    standing = carried_out(advisor, clock)
    for name in ("shop", "batch"):  # as if nothing had been done
        (there.folder / "cpu" / f"lxc.payload.{name}" / "cpu.shares").write_text("1024")
    windows(advisor, clock, 12, {"shop": 0.6, "batch": 0.9, "alike": 0.7})
    standing = advisor.changes.watch(standing.rollout.id)
    shop = next(one for one in standing.effects if one.instance == "shop")
    assert shop.verdict == "less", "predicted +0.2 +- 0.07, measured 0"
    assert standing.verdict == "less"


def test_a_report_of_other_settings_than_were_ordered_is_no_success(
    advisor: Advisor, clock: Clock, there: AgentThere
) -> None:
    there.lies = {}
    assert "says nothing of cpu.shares" in carried_out(advisor, clock).why


def test_a_host_without_a_key_gets_no_order(advisor: Advisor, clock: Clock, there: AgentThere, keys: Path) -> None:
    keys.write_text(f"h2 {KEY}\n")
    with pytest.raises(InvalidInput, match="changed on h1 itself"):
        advisor.changes.of_plan(plan_of(advisor, clock, *STEPS))
    assert there.orders == []


@pytest.mark.parametrize("text", ["h1", "h1 short", f"h1 {KEY} more", f"h1 {KEY}\nh1 {OTHER}", f"h/1 {KEY}"])
def test_a_line_of_keys_that_is_none_is_refused_by_its_number_without_the_key(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o640)
    with pytest.raises(InvalidInput, match=r"line \d") as refused:
        read_keys(file)
    assert KEY not in str(refused.value)


def test_keys_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"h1 {KEY}")
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match="others may read"):
        read_keys(file)
