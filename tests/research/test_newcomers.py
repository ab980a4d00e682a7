"""New VMs on clouds of large hosts: what policies may know, and the simple rules."""

import numpy as np
import pytest

from advisor.domain import PlacementRequest, Recommendation
from advisor.placement.decision import recommend
from advisor.prediction.active import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from research.arena import contest
from research.arena.clusters import CPUS, MEMORY_MB, OVERCOMMIT, NewVmCluster
from research.arena.contest import Advised, rules
from research.benchmarks.newcomers import FIGURES, policies, table

RULES = rules(NewVmCluster.columns)


@pytest.fixture(scope="module")
def few() -> NewVmCluster:
    """The last five of 150 VMs come anew."""
    return NewVmCluster.draw(1, 1.0, 5, kinds=True, never_known=False)


def test_new_vms_are_the_last_of_the_cloud_and_names_of_kinds_change_no_size(few: NewVmCluster) -> None:
    plain = NewVmCluster.draw(1, 1.0, 5, kinds=False, never_known=False)
    all_instances = few.cluster.inventory.instances

    assert (*few.residents, *few.new_vms) == all_instances
    assert [one.vcpus for one in all_instances] == [one.vcpus for one in plain.cluster.inventory.instances]
    assert len({one.id.partition("-")[0] for one in all_instances}) > 3
    assert all(one.demand["cpu"].mean <= one.vcpus for one in all_instances)


@pytest.mark.parametrize("name", [name for name in RULES if name != "random"])
def test_rules_of_thumb_go_by_what_is_known_of_each_host(few: NewVmCluster, name: str) -> None:
    chosen = RULES[name](few)

    hosts = [host.id for host in few.cluster.inventory.hosts]
    wanted, promised, memory, count = np.zeros((4, len(hosts)))
    for one in few.residents:
        at = hosts.index(str(one.host))
        wanted[at] += one.demand["cpu"].mean
        promised[at] += one.vcpus
        memory[at] += one.memory_mb
        count[at] += 1
    first = few.new_vms[0]
    fits = np.flatnonzero((promised + first.vcpus <= OVERCOMMIT * CPUS) & (memory + first.memory_mb <= MEMORY_MB))
    free = sum((one[fits].max() - one[fits]) / np.ptp(one[fits]) for one in (promised, memory))
    best = {
        "first fit": fits[0],
        "Nova's weighers": fits[int(np.argmax(free))],
        "fewest vCPUs": fits[int(promised[fits].argmin())],
        "best fit": fits[int(promised[fits].argmax())],
        "fewest instances": fits[int(count[fits].argmin())],
        "least loaded": fits[int(wanted[fits].argmin())],
    }
    assert chosen[0] == best[name]
    assert len(chosen) == 5


@pytest.mark.parametrize("never_known", [False, True])
def test_the_product_knows_new_vms_when_they_are_there_or_never(
    monkeypatch: pytest.MonkeyPatch, never_known: bool
) -> None:
    arrivals = NewVmCluster.draw(1, 1.0, 5, kinds=True, never_known=never_known)
    asked, there = [], []

    def listening(snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest) -> Recommendation:
        asked.append(request.instance)
        there.append({one.id: one for residents in snapshot.residents for one in residents})
        return recommend(snapshot, context, request)

    monkeypatch.setattr(contest, "recommend", listening)
    Advised(PriorPredictor())(arrivals)

    assert [one.id for one in asked] == [one.id for one in arrivals.new_vms]
    assert not any(one.demand or one.host for one in asked)
    for one in arrivals.new_vms[:-1]:  # where it is not known, demand is that of others alike
        assert (there[-1][one.id].demand["cpu"].mean == one.demand["cpu"].mean) != never_known


def test_the_table_has_every_policy_and_how_much_less_the_first_has(few: NewVmCluster) -> None:
    row = {
        name: [dict.fromkeys(FIGURES, 10.0 * at), dict.fromkeys(FIGURES, 10.0 * at)]
        for at, name in enumerate(policies(PriorPredictor()))
    }

    lines = table(row).splitlines()

    assert lines[2].startswith("| Cotenant | 0.0 | 0.0 | 0.0 |  |")
    assert lines[4] == "| first fit | 20.0 | 20.0 | 20.0 | 20.0 (20.0 to 20.0) |"
    assert len(lines) == 2 + len(policies(PriorPredictor()))
