"""Candidates of an answer as commands: taken back they leave the host as it was, and a cap has the predicted period."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from advisor.domain import Candidate, PlacementRequest, WorkloadProfile
from advisor.render import commands
from models.data.scene import ProfileTable, build_batch
from models.physics.cpu_speed import cap_period_ms
from profiler.host_kinds import HostKind
from profiler.observed import Host, Instance, IsolationSettings, Pinning
from tests.advisor.core.core_clouds import ask, cloud
from tests.advisor.render.render_simulators import Machine
from tests.examples import examples

WORKLOADS = (
    WorkloadProfile("spin", {"cpu": 100.0, "block": 0.0}),
    WorkloadProfile("calm", {"cpu": 20.0, "block": 50.0, "latency_mean_ms": 1.0}),
    WorkloadProfile("flow", {"cpu": 10.0, "net_mbit": 700.0, "block": 80.0}),
    WorkloadProfile("disk", {"cpu": 5.0, "disk_mb_s": 200.0, "block": 100.0}),
    WorkloadProfile("chatty", {"cpu": 40.0, "driver_domain.cpu": 70.0, "net_mbit": 60.0, "block": 30.0}),
)


def instance(name: str, kind: str, number: int, workload: str, **more: object) -> Instance:
    labels = {"mac": f"52:54:00:12:34:{number:02x}", "disk": "8:0" if kind == "lxc" else "vda"}
    return Instance(name, workload=workload, labels=labels, **more)  # type: ignore[arg-type]


def answered(host: Host, residents: Sequence[Instance], new_vm: Instance) -> tuple[Candidate, ...]:
    there = [replace(one, host=host.id) for one in residents]
    asked = PlacementRequest(new_vm, commands=True, explain=False)
    return ask(cloud([host], there, workloads=WORKLOADS), asked).candidates


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Host, list[Instance], Instance]:
    kinds: list[HostKind] = ["xen", "kvm", "lxc"]
    kind = draw(st.sampled_from(kinds))
    host = Host(
        "h1", kind, draw(st.integers(1, 4)), 65_536, nic_mbit=1000, labels={"uplink": "eth0"},
        driver_cpus=draw(st.sampled_from([(), (0,)])), cpu_overcommit=9.0, driver_overcommit=9.0,
    )  # fmt: skip
    busy = st.sampled_from([one.name for one in WORKLOADS])
    residents = [
        instance(
            f"r{at}", kind, at, draw(busy), min_throughput_ratio=draw(st.sampled_from([None, None, 0.5])),
            service=draw(st.sampled_from(["latency", "throughput"])),
            settings=IsolationSettings(cap_percent=draw(st.sampled_from([None, None, 90.0]))),
        )
        for at in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    limit = draw(st.sampled_from([0.5, 0.7, 0.9]))
    return host, residents, instance("n", kind, 9, draw(busy), min_throughput_ratio=limit)


@settings(max_examples=examples(60), deadline=None)
@given(crowded())
def test_undo_of_an_answer_s_commands_leaves_the_host_as_it_was(drawn: tuple[Host, list[Instance], Instance]) -> None:
    host, residents, new_vm = drawn
    for found in answered(host, residents, new_vm):
        event(found.mitigation[-1].action if found.mitigation else "as it is")
        machine = Machine()
        for at, one in enumerate(residents):
            machine.do(commands(host, one, IsolationSettings(), one.settings, neighbours=residents[:at]))
        machine.settle(found.commands)
        machine.check_undo(found.commands, changes=any(one.argv for one in found.commands))
        assert not found.mitigation or found.mitigation[-1].action == "hint" or found.commands


def pinned(text: str) -> IsolationSettings:
    return IsolationSettings(pinning=Pinning.parse(text))


@pytest.mark.parametrize(
    ("action", "kind", "pcpus", "resident", "new_vm"),
    [
        ("weight", "lxc", 1, {"workload": "spin"}, {"workload": "spin", "min_throughput_ratio": 0.6}),
        ("cap", "xen", 1, {"workload": "spin"}, {"workload": "spin", "min_throughput_ratio": 0.6}),
        ("network", "lxc", 4, {"workload": "flow"}, {"workload": "flow", "min_throughput_ratio": 0.9}),
        ("disk", "kvm", 4, {"workload": "disk"}, {"workload": "disk", "min_throughput_ratio": 0.7}),
        (
            "driver_domain", "xen", 4,
            {"workload": "spin", "min_throughput_ratio": 0.5, "settings": pinned("0:0")},
            {"workload": "chatty", "min_throughput_ratio": 0.9, "settings": pinned("0:2")},
        ),
    ],
)  # fmt: skip
def test_every_kind_of_step_is_carried_out_and_taken_back(
    action: str, kind: str, pcpus: int, resident: dict[str, object], new_vm: dict[str, object]
) -> None:
    host = Host("h1", kind, pcpus, 65_536, nic_mbit=1000, labels={"uplink": "eth0"}, driver_cpus=(0,))  # type: ignore[arg-type]
    (found,) = answered(host, [instance("r", kind, 1, **resident)], instance("n", kind, 9, **new_vm))  # type: ignore[arg-type]
    assert [rung.action for rung in found.mitigation][-1:] == [action], [rung.text for rung in found.mitigation]
    assert found.notes == () or "no limit protects it" in found.notes[0]
    machine = Machine()
    machine.settle(found.commands)
    machine.check_undo(found.commands, changes=True)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["kvm", "lxc"]), st.sampled_from([1, 2]), st.integers(1, 4), st.floats(1.0, 100.0),
    st.sampled_from(["latency", "throughput"]),
)  # fmt: skip
def test_a_cap_is_predicted_with_the_period_that_is_rendered(
    kind: str, cgroup: int, vcpus: int, cap: float, service: str
) -> None:
    host = Host("h1", kind, 4, 8192)  # type: ignore[arg-type]
    capped = IsolationSettings(cap_percent=cap)
    one = Instance("shop", vcpus=vcpus, service=service)  # type: ignore[arg-type]
    text = " ".join(commands(host, one, IsolationSettings(), capped, cgroup=cgroup)[0].argv)
    (period,) = re.findall(r"(?:cpu\.max=\d+ |cfs_period_us=|vcpu_period=)(\d+)", text)
    scene = build_batch([(host, [replace(one, settings=capped)])], ProfileTable.build(WORKLOADS))
    predicted = cap_period_ms(scene.kind[:, None], scene.cap, scene.vcpus, scene.prompt)
    assert predicted == pytest.approx(np.array([[int(period) / 1000]]))
