"""Effect of the advice, of a cloud where it is followed, and not; made samples whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation
from advisor.errors import InvalidInput
from advisor.lifecycle.arrivals import BACK_S
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import stays
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import PriorPredictor
from profiler.demand import Demand, Resource
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

HOSTS = tuple(Host(f"h{at}", "kvm", pcpus=2, memory_mb=65_536, cpu_overcommit=8.0) for at in range(4))
LOADS = (0.1, 0.5, 0.8, 0.9)  # CPUs that each of the two residents of a host demands
WINDOW_S = 300.0


def wanting(cpus: float) -> Mapping[Resource, Demand]:
    return {"cpu": Demand(cpus, common=0.0)}


def new_vm(name: str, vcpus: int = 1, cpus: float = 0.6) -> Instance:
    return Instance(name, vcpus=vcpus, memory_mb=1024, demand=wanting(cpus))


@dataclass
class MeasuredCloud:
    """Hosts of which agents measure every instance; each is delivered what the analytic model says of all demands."""

    advisor: Advisor
    clock: Clock
    there: dict[str, Instance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for host, load in zip(HOSTS, LOADS, strict=True):
            for at in range(2):
                one = Instance(f"{host.id}-{at}", vcpus=1, memory_mb=1024, host=host.id, demand=wanting(load))
                self.there[one.id] = one
        self.put()
        self.advisor.look_at_arrivals()

    def put(self) -> None:
        self.advisor.inventory.put(Inventory(HOSTS, tuple(self.there.values())), mode="replace", generation=None)

    def ask(self, instance: Instance, *, dry_run: bool = False) -> Recommendation:
        return self.advisor.placements.place(PlacementRequest(instance, dry_run=dry_run)).recommendation

    def come(self, instance: Instance, host: str) -> None:
        """It is there a minute later, and the operator looks."""
        self.there[instance.id] = replace(instance, host=host)
        self.clock.turn(60)
        self.put()
        self.advisor.look_at_arrivals()

    def windows(self, number: int) -> None:
        for _ in range(number):
            begin_s = math.ceil(self.clock().timestamp() / WINDOW_S) * WINDOW_S
            samples = []
            for vm, share in zip(self.there.values(), self.shares(), strict=True):
                want = vm.demand["cpu"].mean
                values = {"cpu": 100 * want * share, "waiting": 100 * want * (1 - share)}
                for at in range(5):
                    time_s = begin_s + 30 + 60 * at
                    samples += [MetricSample(vm.host or "", vm.id, "instance", *one, time_s) for one in values.items()]
            self.clock.turn(begin_s + WINDOW_S - 1 - self.clock().timestamp())
            self.advisor.telemetry.ingest(samples)
            self.clock.turn(182)
            self.put()
            self.advisor.look_at_arrivals()

    def mean_of(self, names: set[str]) -> float:
        shares = dict(zip(self.there, self.shares(), strict=True))
        return sum(shares[name] for name in names) / len(names)

    def shares(self) -> list[float]:
        vms = list(self.there.values())
        found: dict[str, float] = {}
        for host in HOSTS:
            here = [vm for vm in vms if vm.host == host.id]
            said = PriorPredictor().predict(build_batch([(host, here)], ProfileTable.build(())), ())
            found |= {vm.id: min(float(one), 1.0) for vm, one in zip(here, said.throughput.expected[0], strict=True)}
        return [found[vm.id] for vm in vms]


@pytest.fixture
def cloud(advisor: Advisor, clock: Clock) -> MeasuredCloud:
    return MeasuredCloud(advisor, clock)


def kept(cloud: MeasuredCloud) -> Sequence[stays.Stay]:
    with cloud.advisor._database.read() as connection:
        return stays.since(connection, 0.0)


def test_questions_and_placements_are_counted_and_predicted_stands_beside_observed(cloud: MeasuredCloud) -> None:
    first = cloud.ask(new_vm("web-1"))
    cloud.come(new_vm("web-1"), first.candidates[0].host)
    assert first.candidates[0].host == "h0"
    cloud.ask(new_vm("web-2"))
    cloud.come(new_vm("web-2"), "h3")
    cloud.come(new_vm("web-3"), "h1")
    tried = cloud.ask(new_vm("web-4", cpus=0.02), dry_run=True)
    cloud.come(new_vm("web-4", cpus=0.02), tried.candidates[0].host)
    cloud.ask(new_vm("web-5", vcpus=64))
    cloud.ask(new_vm("web-6"))
    cloud.ask(new_vm("web-6"))
    cloud.ask(new_vm("web-7"), dry_run=True)
    cloud.windows(13)
    found = cloud.advisor.outcomes.worth()
    assert found.heeded == {"followed": 2, "elsewhere": 1, "unseen": 1, "no_host": 1}
    assert (found.arrivals, found.measured) == (4, 4)
    assert found.sentences[0].startswith("In the last 7 days 5 placements were asked for: followed 2")
    by_name = {one.instance: one for one in found.placements}
    assert set(by_name) == {"web-1", "web-2", "web-4"}
    followed, elsewhere = by_name["web-1"], by_name["web-2"]
    assert (followed.heeded, followed.host, followed.recommendation) == ("followed", "h0", first.id)
    assert followed.new_vm is not None and followed.new_vm.windows >= 12
    assert followed.new_vm.predicted == pytest.approx(min(first.candidates[0].new_vm.throughput_ratio.expected, 1.0))
    assert followed.new_vm.observed == pytest.approx(followed.new_vm.predicted, abs=0.03)
    assert followed.residents is not None and followed.residents.windows == 2 * followed.new_vm.windows
    assert (elsewhere.heeded, elsewhere.host, elsewhere.advised) == ("elsewhere", "h3", "h0")
    assert elsewhere.new_vm is not None and elsewhere.new_vm.contended == elsewhere.new_vm.windows
    assert elsewhere.new_vm.observed < followed.new_vm.observed - 0.1
    here, *elsewhere_now = elsewhere.alternatives
    assert (here.host, here.why) == ("h3", "here")
    assert {one.host for one in elsewhere_now} == {"h0", "h1", "h2"}
    (best,) = (one for one in elsewhere_now if one.host == "h0")
    assert best.share > here.share + 0.1, "the model sees now, too, that it would fare better there"
    others = {"h0-0", "h0-1", "web-1", "web-4", "h3-0", "h3-1"}
    assert best.others_here == pytest.approx(cloud.mean_of(others), abs=0.01)
    cloud.there["web-2"] = replace(cloud.there["web-2"], host="h0")
    assert best.others == pytest.approx(cloud.mean_of(others), abs=0.01)
    (least,) = {one.group for one in found.beside}
    assert least == 2
    assert all(one.lower is None and "too few for a comparison" in one.text for one in found.beside)
    with pytest.raises(InvalidInput, match="90m, 24h or 7d"):
        cloud.advisor.outcomes.worth(since="soon")


def test_an_arrival_counts_once_whoever_looks_and_whatever_goes_missing_for_a_while(
    cloud: MeasuredCloud, settings: Settings, clock: Clock
) -> None:
    cloud.come(new_vm("web-1"), "h1")
    with Advisor(settings, clock=clock) as other:
        other.look_at_arrivals()
        cloud.windows(3)
        other.look_at_arrivals()
    (one,) = kept(cloud)
    assert one.fared is not None and 1 <= one.fared["new_vm"]["windows"] <= 3
    gone = cloud.there.pop("web-1")
    cloud.windows(1)
    (one,) = kept(cloud)
    assert one.ended_s is not None
    cloud.come(gone, "h1")
    (again,) = kept(cloud)
    assert (again.since_s, again.ended_s) == (one.since_s, None)
    cloud.there.pop("web-1")
    cloud.windows(1)
    clock.turn(BACK_S)
    cloud.come(gone, "h1")
    assert [one.ended_s is None for one in kept(cloud)] == [True, False]
    cloud.come(gone, "h2")
    assert [one.host for one in kept(cloud) if one.ended_s is None] == ["h2"]


def test_new_hosts_bring_their_instances_and_what_is_old_is_forgotten(
    cloud: MeasuredCloud, clock: Clock, advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.HOSTS", (*HOSTS, replace(HOSTS[0], id="h9")))
    cloud.come(new_vm("old-1"), "h9")
    assert not kept(cloud), "it was there before anybody knew its host"
    cloud.come(new_vm("web-1"), "h9")
    cloud.come(new_vm("web-2"), "h0")
    cloud.there.pop("web-2")
    cloud.windows(1)
    assert {one.instance for one in kept(cloud)} == {"web-1", "web-2"}
    clock.turn(91 * 86_400)
    advisor.prune()
    assert not kept(cloud)
    cloud.put()
    advisor.look_at_arrivals()
    assert not kept(cloud), "a resident of long standing has not come now"
