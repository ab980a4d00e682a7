"""Hosts on which a limit breaks, for the tests of the isolation ladder, and a ladder climbed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from advisor import mitigation
from advisor.domain import Host, Instance, IsolationSettings, MitigationStep, Pinning, WorkloadProfile
from advisor.rounding import SLACK
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler.observed import NetworkSettings
from tests.advisor.core.core_clouds import WORKLOADS, host, vm

PROFILES = (
    *WORKLOADS,
    WorkloadProfile("query", {"cpu": 10.0, "net_mbit": 5.0, "block": 80.0, "latency_mean_ms": 0.5}),
    WorkloadProfile("flow", {"cpu": 10.0, "net_mbit": 700.0, "block": 80.0}),
    WorkloadProfile("steady", {"cpu": 30.0, "execution": 300.0, "block": 60.0, "latency_mean_ms": 2.0}),
    WorkloadProfile("chatty", {"cpu": 40.0, "driver_domain.cpu": 70.0, "net_mbit": 60.0, "block": 30.0}),
)
TABLE = ProfileTable.build(PROFILES)


@dataclass(frozen=True)
class Shared:
    """A host, who is on it, and who is to come."""

    host: Host
    residents: Sequence[Instance]
    new_vm: Instance

    def escalate(self, predictor: Predictor | None = None, others: Sequence[str] = ()) -> tuple[MitigationStep, ...]:
        return mitigation.escalate(
            self.host,
            self.residents,
            self.new_vm,
            table=TABLE,
            row=None,
            predictor=predictor or PriorPredictor(),
            others=others,
        )

    @property
    def all_instances(self) -> tuple[Instance, ...]:
        return (*self.residents, self.new_vm)

    def kept(
        self, rung: MitigationStep | None = None, *, new_vm: bool = True, host: Host | None = None
    ) -> dict[str, Any]:
        """T/B, latency ratio and contended time of each by id, asked of the prior anew under a rung's settings."""
        changes = rung.changes if rung else {}
        there = self.all_instances if new_vm else self.residents
        if not there:
            return {}
        asked = [replace(one, settings=changes.get(one.id, one.settings)) for one in there]
        found = PriorPredictor().predict(build_batch([(host or self.host, asked)], TABLE))
        return {
            one.id: (
                float(found.throughput.expected[0, at]),
                float(found.latency.expected[0, at]),
                float(found.time_short()[0, at]),
            )
            for at, one in enumerate(there)
        }


def broken(shared: Shared, kept: dict[str, Any]) -> set[tuple[str, str]]:
    """Which limits are not kept."""
    found = set()
    for one in (instance for instance in shared.all_instances if instance.id in kept):
        ratio, latency, short = kept[one.id]
        if one.min_throughput_ratio is not None and ratio < one.min_throughput_ratio - SLACK:
            found.add((one.id, "throughput"))
        if one.max_latency_ratio is not None and 1 / latency < 1 / one.max_latency_ratio - SLACK:
            found.add((one.id, "latency"))
        if one.max_time_short is not None and short > one.max_time_short + SLACK:
            found.add((one.id, "time short"))
    return found


@st.composite
def crowded_hosts(draw: st.DrawFn) -> Shared:
    """Small hosts with one to four residents, settings and limits at random."""
    pcpus = draw(st.integers(1, 3))
    where = host(
        pcpus=pcpus,
        kind=draw(st.sampled_from(["xen", "kvm", "lxc"])),
        driver_cpus=draw(st.sampled_from([(), (0,)])),
        nic_mbit=draw(st.sampled_from([1000.0, None])),
    )
    count = draw(st.integers(1, 4))
    residents = [draw(_instance(f"r{at}", pcpus)) for at in range(count)]
    new_vm = replace(
        draw(_instance("n", pcpus)),
        min_throughput_ratio=draw(st.sampled_from([0.4, 0.55, 0.7, 0.9])),
        settings=IsolationSettings(pinning=Pinning.parse(draw(st.sampled_from(["", "0:0"])))),
    )
    return Shared(where, residents, new_vm)


@st.composite
def _instance(draw: st.DrawFn, name: str, pcpus: int) -> Instance:
    first = draw(st.integers(0, pcpus - 1))
    networks = [NetworkSettings("dedicated", 300.0, 300.0), NetworkSettings("shared", 50.0, 600.0)]
    more: dict[str, Any] = {
        "pins": draw(st.sampled_from(["", "", f"0:{first}"])),
        "cap_percent": draw(st.sampled_from([None, None, None, 60.0])),
        "weight": draw(st.sampled_from([None, None, None, 64, 1024])),
        "network": draw(st.sampled_from([None, None, *networks])),
        "disk_limit_mb_s": draw(st.sampled_from([None, None, 150.0])),
        "min_throughput_ratio": draw(st.sampled_from([None, None, None, 0.2, 0.5])),
        "max_latency_ratio": draw(st.sampled_from([None, None, None, 2.0, 5.0])),
        "max_time_short": draw(st.sampled_from([None, None, None, 0.01, 0.3])),
        "service": draw(st.sampled_from(["latency", "throughput"])),
    }
    busy = ["spin", "bulk", "flow", "disk", "chatty", None]
    return vm(name, draw(st.sampled_from([*busy, *busy, *(one.name for one in PROFILES)])), **more)


def looser(old: IsolationSettings, new: IsolationSettings) -> list[str]:
    """Names of the settings that were there and hold less now, or of a pin that moved."""
    found = []
    if old.pinning is not None and any(old.pinning.cpus) and new.pinning != old.pinning:
        found.append("pinning")
    if old.weight is not None and (new.weight is None or new.weight > old.weight):
        found.append("weight")
    found += [
        name
        for name in ("cap_percent", "disk_limit_mb_s")
        if getattr(old, name) is not None and (getattr(new, name) or np.inf) > getattr(old, name)
    ]
    was = old.network
    if was is not None and was.mode != "none":
        now = new.network or NetworkSettings()
        most = [one.ceil_mbit if one.mode == "shared" else one.rate_mbit for one in (was, now)]
        if now.mode != was.mode or (now.rate_mbit or 0) > (was.rate_mbit or 0) or (most[1] or np.inf) > (most[0] or 0):
            found.append("network")
    return found
