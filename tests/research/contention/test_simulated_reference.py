"""Random hosts, their records, runs that go on, and the fit of traces."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.contention import records, reference
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec
from research.contention.random_hosts import CPUS, MOST_INSTANCES, RandomHost, random_cloud, random_host
from research.contention.records import HostRecord
from research.contention.simulator import Bursts, Simulated


@pytest.fixture(scope="module")
def hosts() -> list[RandomHost]:
    return [random_host(f"host-{seed}", seed) for seed in range(150)]


def test_random_hosts_are_of_the_sizes_and_loads_asked_for(hosts: list[RandomHost]) -> None:
    for host in hosts:
        spec = host.spec
        assert spec.cpus in CPUS
        assert 2 <= len(spec.instances) <= MOST_INSTANCES
        assert {one.id for one in spec.instances} >= set(host.bursts)
        for one in spec.instances:
            assert 0 < one.demand_cpus <= one.vcpus
            assert 2 <= one.burst_ms <= 500
            assert one.burst_ms * 20 <= spec.window_s * 1000 + 20
            assert 0 <= one.common <= 0.5
            assert one.spread_cpus <= 0.6 * one.demand_cpus + 1e-4
            assert all(0 <= cpu < spec.cpus for cpu in one.pin)
    loads = [sum(one.demand_cpus for one in host.spec.instances) / host.spec.cpus for host in hosts]
    assert np.quantile(loads, 0.05) >= 0.5
    assert max(loads) <= 1.3


def test_random_hosts_have_every_loop_and_weights_caps_and_pins_in_a_part_of_them(
    hosts: list[RandomHost],
) -> None:
    everyone = [one for host in hosts for one in host.spec.instances]
    assert {one.loop for one in everyone} == {"open", "closed", "hog"}
    assert any(bursts.periodic for host in hosts for bursts in host.bursts.values())
    with_pins = [any(one.pin for one in host.spec.instances) for host in hosts]
    with_caps = [any(math.isfinite(one.cap_cpus) for one in host.spec.instances) for host in hosts]
    with_weights = [len({one.weight for one in host.spec.instances}) > 1 for host in hosts]
    for part in (with_pins, with_caps, with_weights):
        assert 0.1 < np.mean(part) < 0.7


def test_a_seed_gives_one_host_and_a_cloud_hosts_of_one_size_at_several_loads() -> None:
    assert random_host("a", 3) == random_host("a", 3)
    assert random_host("a", 3) != random_host("a", 4)
    cloud = random_cloud("c", 5)
    assert len({host.spec.cpus for host in cloud}) == 1
    loads = sorted(sum(one.demand_cpus for one in host.spec.instances) / host.spec.cpus for host in cloud)
    assert loads[-1] - loads[0] > 0.4


def made_up(name: str = "host-0") -> HostRecord:
    first = InstanceSpec("a", 2, 0.5, "open", 20.0, cap_cpus=1.5, pin=(0, 1, 3))
    instances = (first, InstanceSpec("b", 1, 1.0, "hog", 5.0, weight=512.0))
    outcomes = {"a": InstanceOutcome(0.9, 0.2, 0.1, 45.0, 5.0), "b": InstanceOutcome(0.5, 1.0, 1.0, 50.0, 50.0)}
    return HostRecord(
        HostSpec(name, 4, instances, 2.5),
        HostOutcome(outcomes, 0.25),
        "simulated",
        7,
        "cloud-0",
        {"a": Bursts("lognormal", 3.0)},
        {"a": 0.002, "b": 0.003},
        {"a": 0.3, "b": 0.5},
    )


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "hosts.jsonl.gz"
    written = [made_up("one"), replace(made_up("two"), bursts={}, share_error=None, lost_95=None)]
    for record in written:
        records.append(path, record)
    assert list(records.read(path)) == written
    records.write(path, written)
    assert list(records.read(path)) == written


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "hosts.jsonl.gz"
    for name in ("one", "two"):
        records.append(path, made_up(name))
    path.write_bytes(path.read_bytes()[:-cut])
    assert [record.spec.id for record in records.read(path)][:1] == ["one"]


def test_a_record_that_lacks_a_field_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "hosts.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "host-0", "instances": []}\n'))
    with pytest.raises(ValueError, match="lacks"):
        list(records.read(path))


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def no_instance_is_short(spec: HostSpec, *_: object) -> Simulated:
        asked.append(spec.id)
        if len(asked) == 3:
            raise KeyboardInterrupt
        names = [one.id for one in spec.instances]
        outcome = HostOutcome({name: InstanceOutcome(1.0, 0.0, 0.0, 1.0, 0.0) for name in names}, 0.0)
        return Simulated(outcome, dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), 1, 1)

    monkeypatch.setattr(reference, "simulate", no_instance_is_short)
    out = tmp_path / "set" / "hosts.jsonl.gz"
    with pytest.raises(KeyboardInterrupt):
        reference.main([str(out), "--hosts", "4"])
    assert not out.exists()
    assert reference.main([str(out), "--hosts", "4"]) == 0
    assert asked == ["host-0", "host-1", "host-2", "host-2", "host-3"]
    assert [record.spec.id for record in records.read(out)] == ["host-0", "host-1", "host-2", "host-3"]
    assert [path.name for path in out.parent.iterdir()] == ["hosts.jsonl.gz"]


def test_random_hosts_of_a_cloud_have_names_of_their_own() -> None:
    clouds: list[RandomHost] = [*random_cloud("c0", 1), *random_cloud("c1", 2)]
    assert len({host.spec.id for host in clouds}) == 16
