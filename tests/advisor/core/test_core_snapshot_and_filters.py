"""Who is where, and which hosts can take an instance at all: a stable code and a sentence for each that cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.domain import Host, Instance, IsolationSettings, Pinning, PlacementRequest
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from tests.advisor.core.core_clouds import FRESH_S, cloud, host, request, vm


def rejected(snapshot: ClusterSnapshot, question: PlacementRequest) -> dict[str, tuple[str, str]]:
    _, found = filters.apply(snapshot, question, fresh_s=FRESH_S)
    return {one.host: (one.code, one.reason) for one in found}


def kept(snapshot: ClusterSnapshot, question: PlacementRequest) -> list[str]:
    found, _ = filters.apply(snapshot, question, fresh_s=FRESH_S)
    return [snapshot.hosts[at].id for at in found]


# the snapshot


def test_hosts_and_residents_are_ordered_by_id_and_the_arrays_say_the_same() -> None:
    snapshot = cloud([host("b"), host("a")], [vm("z", on="a"), vm("y", "web", on="a"), vm("x", on="b")])
    assert [one.id for one in snapshot.hosts] == ["a", "b"]
    assert [snapshot.index(name) for name in "abc"] == [0, 1, None]
    assert [[one.id for one in there] for there in snapshot.residents] == [["z", "y"], ["x"]]
    names = snapshot.scenes.table.names
    assert [names[row] for row in snapshot.scenes.profile[0]] == ["spin", "web"]
    assert snapshot.scenes.present.tolist() == [[True, True], [True, False]]


def test_what_residents_hold_is_summed_up() -> None:
    snapshot = cloud(
        [host("a"), host("b")],
        [vm("x", on="a", vcpus=2, memory_mb=100.0, disk_gb=5.0), vm("y", on="a", memory_mb=50.0), vm("z", on=None)],
    )
    used = (snapshot.used_vcpus, snapshot.used_memory_mb, snapshot.used_disk_gb)
    assert [array.tolist() for array in used] == [[3.0, 0.0], [150.0, 0.0], [5.0, 0.0]]


def test_pending_answers_count_until_the_inventory_shows_the_instance() -> None:
    for there, pending, used in (
        ([], "a", [1.0, 0.0]),
        ([vm("p", on=None)], "a", [1.0, 0.0]),
        ([vm("p", on="b")], "a", [0.0, 1.0]),
        ([], "elsewhere", [0.0, 0.0]),
    ):
        snapshot = cloud([host("a"), host("b")], there, pending=[vm("p", on=pending)])
        assert snapshot.used_vcpus.tolist() == [len(residents) for residents in snapshot.residents] == used


def test_ages_run_from_when_a_host_was_seen_and_have_no_end_where_it_never_was() -> None:
    snapshot = cloud([host("a"), host("b"), host("c")], age_s={"a": 30.0, "b": None, "c": -10.0})
    assert snapshot.age_s.tolist() == [30.0, np.inf, 0.0]


def test_an_empty_cloud_is_a_cloud() -> None:
    snapshot = cloud([])
    assert len(snapshot.scenes) == 0
    assert rejected(snapshot, request()) == {}
    assert rejected(snapshot, request(hosts=("a",))) == {"a": ("host.unknown", "there is no host of this name")}


# one filter after the other

Case = tuple[Host, dict[str, Any], Instance, str, str]
CASES: dict[str, Case] = {
    "disabled": (host(enabled=False), {}, vm(), "host.disabled", "the host is disabled"),
    "kind": (host(), {"kind": "xen"}, vm(), "constraint.kind", "needs a xen host, this one is kvm"),
    "label missing": (host(), {"labels": {"zone": "a"}}, vm(), "constraint.label", "needs label zone=a, has none"),
    "label other": (
        host(labels={"zone": "b"}), {"labels": {"zone": "a"}}, vm(), "constraint.label", "needs label zone=a, has b",
    ),
    "exclude": (host(), {"exclude": ("h1",)}, vm(), "constraint.exclude", "the request excludes this host"),
    "affinity": (host(), {"affinity": ("r", "z")}, vm(), "constraint.affinity", "z is not on this host"),
    "anti-affinity": (host(), {"anti_affinity": ("r",)}, vm(), "constraint.anti_affinity", "r is on this host"),
    "more vCPUs than pCPUs": (host(), {}, vm(vcpus=5), "capacity.vcpus", "needs 5 vCPUs, the host has 4 pCPUs"),
    "overcommitted": (
        host(cpu_overcommit=1.0), {}, vm(vcpus=4), "capacity.vcpus", "needs 4 vCPUs, 3 free at overcommit 1",
    ),
    "more own CPUs than are set apart": (
        host(dedicated_cpus=(2, 3)), {}, vm(vcpus=3, dedicated_vcpus=3), "capacity.dedicated",
        "needs 3 pCPUs of its own, 2 are free",
    ),
    "shared vCPUs beside dedicated ones": (
        host(dedicated_cpus=(2, 3)), {}, vm(vcpus=3), "capacity.vcpus",
        "needs 3 shared vCPUs, the host has 2 shared pCPUs",
    ),
    "memory": (
        host(memory_mb=2000.0), {}, vm(memory_mb=1000.0), "capacity.memory", "needs 1000 MB, 976 MB free",
    ),
    "memory, to the digit by which it does not fit": (
        host(memory_mb=1_049_600.0), {}, vm(memory_mb=1_048_576.5), "capacity.memory",
        "needs 1048576.5 MB, 1048576 MB free",
    ),
    "disk": (host(disk_gb=100.0), {}, vm(disk_gb=91.0), "capacity.disk", "needs 91 GB of disk, 90 GB free"),
    "pins": (host(), {}, vm(pins="0:4"), "capacity.pinning", "pinned to pCPU 4, the host has 0-3"),
    "pins of a vCPU beside a free one": (
        host(), {}, replace(vm(vcpus=2), settings=IsolationSettings(pinning=Pinning(((), (9,))))), "capacity.pinning",
        "pinned to pCPU 9, the host has 0-3",
    ),
    "exclusive": (
        host(), {}, vm(exclusive=True), "constraint.exclusive", "n requires a host for itself, and r is on this one",
    ),
    "driver domain": (
        host(driver_overcommit=0.05), {}, vm(workload="web"), "capacity.driver_domain",
        "would ask its driver domain for 0.40 CPUs, 0.00 are asked for already where 0.2 may be at overcommit 0.05",
    ),
    "more vCPUs promised than there may be": (
        host(cpu_overcommit=0.1), {}, vm(), "capacity.vcpus",
        "needs 1 vCPUs, 1 are promised already where 0.4 may be at overcommit 0.1",
    ),
    "more memory promised than there may be": (
        host(memory_mb=1000.0), {}, vm(memory_mb=1.0), "capacity.memory",
        "needs 1 MB, 1024 MB are promised already where 1000 MB may be",
    ),
    "more disk promised than there may be": (
        host(disk_gb=5.0), {}, vm(disk_gb=1.0), "capacity.disk",
        "needs 1 GB of disk, 10 GB are promised already where 5 GB may be",
    ),
}  # fmt: skip
RESIDENT = vm("r", "calm", on="h1", disk_gb=10.0)


@pytest.mark.parametrize("name", CASES)
def test_every_filter_names_its_code_and_its_reason(name: str) -> None:
    there, constraints, instance, code, reason = CASES[name]
    snapshot = cloud([there], [RESIDENT])
    assert rejected(snapshot, request(instance, **constraints)) == {"h1": (code, reason)}
    assert code in filters.CODES


def test_every_code_of_the_filters_has_a_test() -> None:
    elsewhere = {"host.no_data", "host.memory_short", "constraint.never_move", "capacity.counted"}
    assert {case[3] for case in CASES.values()} | elsewhere == {code for code, _ in filters.CHECKS}
    assert len(set(filters.CODES)) == len(filters.CODES)


@pytest.mark.parametrize(
    ("there", "residents", "new_vm"),
    [
        (host(pcpus=100, cpu_overcommit=1.15), [{"vcpus": 10}] * 11, {"vcpus": 5}),
        (host(memory_mb=4096.0, memory_overcommit=1.15), [{"memory_mb": 4000.0}], {"memory_mb": 710.4}),
        (host(disk_gb=0.3), [{"disk_gb": 0.1}], {"disk_gb": 0.2}),
        (
            host(driver_cpus=(0,), driver_overcommit=1.2), [{"workload": "web", "disk_gb": 0.0}] * 2,
            {"workload": "web"},
        ),
    ],
    ids=["vCPUs", "memory", "disk", "driver domain"],
)  # fmt: skip
def test_what_fits_to_the_last_bit_in_decimals_is_kept_whatever_binary_fractions_make_of_it(
    there: Host, residents: list[dict[str, Any]], new_vm: dict[str, Any]
) -> None:
    company = [vm(f"r{at}", on="h1", **{"memory_mb": 1.0, **one}) for at, one in enumerate(residents)]
    asked = vm(**{"memory_mb": 1.0, **new_vm})
    assert rejected(cloud([there], company), request(asked)) == {}
    over = cloud([there], [*company, vm("last", "web", on="h1", vcpus=1, memory_mb=1.0, disk_gb=0.1)])
    assert rejected(over, request(asked))["h1"][0].startswith("capacity.")


def test_an_instance_in_question_does_not_stand_in_its_own_way() -> None:
    """It may sit on the host already, or wait for it."""
    tight = host(memory_mb=1024.0, cpu_overcommit=0.25, disk_gb=10.0)
    mine = vm("n", on="h1", disk_gb=10.0)
    for snapshot in (cloud([tight], [mine]), cloud([tight], [], pending=[mine])):
        assert kept(snapshot, request(replace(mine, host=None), anti_affinity=("n",))) == ["h1"]
        assert rejected(snapshot, request(replace(mine, host=None), affinity=("n",)))["h1"][0] == "constraint.affinity"


def test_who_wants_a_host_for_itself_keeps_others_away() -> None:
    taken = cloud([host("h1")], [vm("lonely", on="h1", exclusive=True)])
    assert rejected(taken, request()) == {"h1": ("constraint.exclusive", "lonely requires a host for itself")}


def test_a_driver_domain_counts_what_all_ask_of_it_but_not_twice_what_the_new_vm_does() -> None:
    there = [vm("r", "web", on="h1"), vm("s", "web", on="h1")]
    snapshot = cloud([host("h1", driver_cpus=(0,), driver_overcommit=1.0)], there)
    code, sentence = rejected(snapshot, request(vm(workload="web")))["h1"]
    assert code == "capacity.driver_domain"
    assert sentence.startswith("would ask its driver domain for 0.40 CPUs, 0.80 are asked for already where 1 may be")
    assert kept(snapshot, request(vm("r", "web"))) == ["h1"]


# freshness


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (None, "no fresh data: the age of its data is unknown, at most 600 s are allowed"),
        (601.0, "no fresh data: it was last seen 601 s ago, at most 600 s are allowed"),
    ],
)
def test_a_host_without_fresh_data_is_rejected_unless_the_caller_allows_it(age: float | None, reason: str) -> None:
    snapshot = cloud([host()], age_s={"h1": age})
    assert rejected(snapshot, request()) == {"h1": ("host.no_data", reason)}
    assert kept(snapshot, request(allow_stale=True)) == ["h1"]
