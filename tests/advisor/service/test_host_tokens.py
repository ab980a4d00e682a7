"""What the token of one host's agent may say of instances: what is on that host, and nothing of what is elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from advisor.domain import Announced, Announcement, Host, Instance, ProbeReport
from advisor.inventories.reading import Reading
from advisor.service import Advisor
from profiler.metrics import WAITED_FOR
from profiler.observed import MetricSample, ProbeResult, Quantity
from tests.advisor.service.service_clock import Clock

KVM = {"kind": "kvm", "pcpus": 16, "memory_mb": 65536.0}


def vm(name: str, uuid: str = "", **labels: str) -> Mapping[str, Any]:
    """A guest of two vCPUs; its UUID is that of its name, `-` = none."""
    known = {} if uuid == "-" else {"uuid": uuid or f"u-{name}"}
    return {"id": name, "vcpus": 2, "memory_mb": 2048.0, "labels": {**known, **labels}}


class Agents:
    """Agents of several hosts; each has a token that is bound to its host."""

    def __init__(self, advisor: Advisor, clock: Clock) -> None:
        self._advisor, self._clock = advisor, clock

    def announce(self, host: str, *guests: Mapping[str, Any], **facts: Any) -> Announced:
        reported = {"id": host, **KVM, **facts}
        self._clock.turn(10)
        return self._advisor.inventory.announce(
            Announcement(reported, guests, f"m-{host}", 60.0, self._clock.now, bound=True)
        )

    def send(self, host: str, *names: str, of: Iterable[str] = (), time_s: float | None = None) -> list[str]:
        """Samples of these instances, and of `of` as hosts; why some were dropped."""
        at = self._clock.now.timestamp() if time_s is None else time_s
        batch = [MetricSample(host, name, "instance", "cpu", 50.0, at) for name in names]
        batch += [MetricSample(other, None, "host", "event", 1.0, at) for other in of]
        return [reason for _, reason in self._advisor.telemetry.ingest(batch, only=host)["dropped"]]

    def where(self, name: str) -> str | None:
        return self._advisor.inventory.instance(name).host


@pytest.fixture
def agents(advisor: Advisor, clock: Clock) -> Agents:
    advisor.inventory.put_host(Host("kvm4", "kvm", 16, 65536.0))
    advisor.inventory.put_instance(Instance("ledger", 2, 2048.0, host="kvm4"))
    agents = Agents(advisor, clock)
    agents.announce("kvm1", vm("web"))
    agents.announce("kvm2", vm("mail"))
    return agents


def test_samples_of_an_instance_on_another_host_are_dropped_and_teach_nothing(
    advisor: Advisor, agents: Agents, clock: Clock
) -> None:
    begin = clock.now.timestamp() // 300 * 300
    for window in range(1, 4):
        at = begin + 300.0 * window
        clock.now += timedelta(seconds=at - clock.now.timestamp())
        honest = [MetricSample("kvm2", "mail", "instance", "cpu", 190.0, at - 200.0 + 60 * n) for n in range(3)]
        false = [MetricSample("kvm1", "mail", "instance", "cpu", 95.0, at - 220.0 + 60 * n) for n in range(3)]
        dropped = advisor.telemetry.ingest(false, only="kvm1")["dropped"]
        assert {reason for _, reason in dropped} == {"this token is for the agent of host kvm1, and mail is not on it"}
        assert len(dropped) == 3
        assert advisor.telemetry.ingest(honest, only="kvm2")["accepted"] == 3
    clock.turn(300)
    agents.send("kvm2", "mail")
    demand = advisor.inventory.instance("mail").demand["cpu"]
    assert demand.mean == pytest.approx(1.9, rel=0.01)


def test_a_sample_may_not_blame_an_instance_of_another_host(advisor: Advisor, agents: Agents, clock: Clock) -> None:
    del agents
    blame = MetricSample("kvm1", "web", "instance", f"{WAITED_FOR}mail", 50.0, clock.now.timestamp())
    (dropped,) = advisor.telemetry.ingest([blame], only="kvm1")["dropped"]
    assert dropped == (0, "this token is for the agent of host kvm1, and mail is not on it")


def test_what_was_measured_before_an_instance_left_is_taken_when_it_comes_late(
    advisor: Advisor, agents: Agents, clock: Clock
) -> None:
    advisor.look_at_arrivals()
    before_s = clock.now.timestamp()
    agents.announce("kvm1")
    agents.announce("kvm2", vm("mail"), vm("web"))
    assert agents.where("web") == "kvm2"
    clock.turn(60)
    advisor.look_at_arrivals()
    clock.turn(60)
    assert agents.send("kvm1", "web", time_s=before_s) == []
    assert agents.send("kvm1", "web") == ["this token is for the agent of host kvm1, and web is not on it"]
    assert agents.send("kvm2", "web") == []


@pytest.mark.parametrize(
    "labels", [{}, {"source": "agent"}, {"source.host": "agent", "stopped_at": "2020-01-01T00:00"}]
)
@pytest.mark.parametrize("uuid", ["-", ""])
def test_an_instance_that_was_written_down_on_another_host_stays_there(
    advisor: Advisor, agents: Agents, clock: Clock, labels: Mapping[str, str], uuid: str
) -> None:
    written = advisor.inventory.instance("ledger")
    found = agents.announce("kvm1", vm("web"), vm("ledger", uuid, **labels))
    assert (found.moved, found.changed) == ((), ())
    for _ in range(3):
        clock.turn(3600)
        assert agents.announce("kvm1", vm("web")).gone == ()
    assert advisor.inventory.instance("ledger") == written


def test_nor_does_it_leave_the_host_whose_agent_reports_it(advisor: Advisor, agents: Agents) -> None:
    agents.announce("kvm4", vm("ledger"))
    found = agents.announce("kvm1", vm("web"), vm("ledger"))
    assert agents.where("ledger") == "kvm4"
    assert any("ledger is also reported by kvm4" in note for note in found.notes)
    assert "ledger" in advisor.cloud.vitals().disagreements["kvm1"]


def test_an_instance_that_was_written_down_moves_once_its_hosts_agent_no_longer_has_its_uuid(agents: Agents) -> None:
    agents.announce("kvm4", vm("ledger"))
    assert agents.announce("kvm1", vm("web"), vm("ledger")).moved == ()
    agents.announce("kvm4")
    assert agents.announce("kvm1", vm("web"), vm("ledger", "another")).moved == ()
    assert agents.announce("kvm1", vm("web"), vm("ledger")).moved == ("ledger",)
    assert agents.send("kvm1", "ledger") == []
    assert agents.send("kvm4", "ledger") == ["this token is for the agent of host kvm4, and ledger is not on it"]


def test_a_guest_that_its_agent_reports_moves_with_its_uuid_when_the_agent_no_longer_reports_it(agents: Agents) -> None:
    both = agents.announce("kvm1", vm("web"), vm("mail"))  # while it is copied both have it
    assert both.moved == ()
    assert agents.send("kvm1", "mail") != []
    agents.announce("kvm2")
    assert agents.announce("kvm1", vm("web"), vm("mail")).moved == ("mail",)
    assert agents.send("kvm1", "mail") == []


def test_a_stopped_guest_is_not_taken_over_by_its_name_alone(advisor: Advisor, agents: Agents) -> None:
    agents.announce("kvm2")
    found = agents.announce("kvm1", vm("web"), vm("mail", "-"))
    assert (found.moved, agents.where("mail")) == ((), "kvm2")
    assert "mail" in advisor.cloud.vitals().disagreements["kvm1"]


def test_a_silent_hosts_guest_is_taken_over_by_its_uuid_only(agents: Agents, clock: Clock) -> None:
    clock.turn(3600)
    assert agents.announce("kvm1", vm("web"), vm("mail", "-")).moved == ()
    assert agents.announce("kvm1", vm("web"), vm("mail")).moved == ("mail",)


def test_containers_that_have_no_uuid_move_when_their_host_no_longer_reports_them(agents: Agents) -> None:
    agents.announce("kvm2", vm("mail"), vm("job", "-"))
    assert agents.announce("kvm1", vm("web"), vm("job", "-")).moved == ()
    agents.announce("kvm2", vm("mail"))
    assert agents.announce("kvm1", vm("web"), vm("job", "-")).moved == ("job",)


def test_what_another_source_moves_is_spoken_for_by_the_host_that_it_moved_to(advisor: Advisor, agents: Agents) -> None:
    def nova(host: str) -> None:
        facts: Any = {"id": "u-1", "host": host, "vcpus": 2, "memory_mb": 2048.0, "labels": {"name": "shop"}}
        hosts: list[Any] = [{"id": name, **KVM} for name in ("kvm1", "kvm2")]
        advisor.inventory.follow(Reading("openstack", tuple(hosts), instances=(facts,)))

    nova("kvm2")
    found = agents.announce("kvm1", vm("web"), vm("instance-0001", "u-1"))
    assert found.notes == ("u-1 runs here, but openstack says that it is on kvm2",)
    assert agents.send("kvm1", "u-1") != []
    nova("kvm1")
    agents.announce("kvm1", vm("web"), vm("instance-0001", "u-1"))
    assert agents.send("kvm1", "u-1", "instance-0001") == []
    assert agents.send("kvm2", "u-1") != []


def test_a_uuid_of_an_instance_elsewhere_identifies_no_instance_here(advisor: Advisor, agents: Agents) -> None:
    found = agents.announce("kvm1", vm("web"), vm("impostor", "u-mail"))
    assert found.new == ("impostor",)
    assert "uuid" not in advisor.inventory.instance("impostor").labels
    assert "impostor has the UUID of mail on kvm2" in found.notes[0]
    synced = {"id": "mail", "host": "kvm2", "vcpus": 2, "memory_mb": 2048.0, "labels": {"uuid": "u-mail"}}
    advisor.inventory.follow(Reading("libvirt", (), instances=(synced,)))
    assert (agents.where("mail"), agents.where("impostor")) == ("kvm2", "kvm1")


def test_reserved_labels_of_hosts_and_instances_are_dropped(advisor: Advisor, agents: Agents) -> None:
    reserved = {"source": "openstack", "source.vcpus": "agent", "disagreement": "none", "machine": "m-kvm2"}
    found = agents.announce(
        "kvm4", vm("ledger", **reserved), vm("fresh", domain="mail", **reserved), labels={**reserved, "kernel": "6.1"}
    )
    host, fresh = advisor.inventory.host("kvm4"), advisor.inventory.instance("fresh")
    assert (host.labels.get("source"), host.labels["machine"], host.labels["kernel"]) == (None, "m-kvm4", "6.1")
    assert (fresh.labels["source"], fresh.labels.keys() & {"source.vcpus", "domain", "machine"}) == ("agent", set())
    assert "source" not in advisor.inventory.instance("ledger").labels
    assert len([note for note in found.notes if "is reserved" in note]) == 3


def test_samples_and_probes_speak_for_the_own_host_only(advisor: Advisor, agents: Agents, clock: Clock) -> None:
    assert agents.send("kvm1", of=["kvm1", "kvm2"]) == ["this token is for the agent of host kvm1, not of kvm2"]
    result = ProbeResult("rtt", {"median": Quantity(1.0, "ms")}, "median", {})
    reports = [
        ProbeReport(host, result, clock.now, instance)
        for host, instance in [("kvm1", ""), ("kvm1", "web"), ("kvm1", "mail"), ("kvm2", "")]
    ]
    taken = advisor.telemetry.take_probes(reports, only="kvm1")
    assert taken["accepted"] == 2
    assert [at for at, _ in taken["dropped"]] == [2, 3]
