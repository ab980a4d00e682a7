"""What the properties of rendered commands are tried on: hosts of every kind and target, instances, settings."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import strategies as st

from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

PCPUS, VCPUS = 4, 2
NOTHING = IsolationSettings()
EVERYTHING = IsolationSettings(Pinning(((1,), (2,))), 150, 7, NetworkSettings("dedicated", 7), 7)


@dataclass(frozen=True)
class Place:
    """A kind of host with what runs commands there; `uplink` = whether it can be shaped."""

    kind: str
    cgroup: int = 2
    scheduler: str = "credit2"
    target: str = "native"
    uplink: bool = True
    kernel: str = ""

    @property
    def options(self) -> dict[str, Any]:
        return {"scheduler": self.scheduler, "cgroup": self.cgroup, "target": self.target}

    def host(self) -> Host:
        labels = {"uplink": "eth0"} if self.uplink else {}
        return Host(
            "h1", self.kind, PCPUS, 8192, cpu_mhz=2600, nic_mbit=1000, driver_cpus=(0,),  # type: ignore[arg-type]
            labels=labels | ({"kernel": self.kernel} if self.kernel else {}),
        )  # fmt: skip

    def instance(self, name: str, number: int, settings: IsolationSettings, service: str = "throughput") -> Instance:
        labels = {
            "mac": f"52:54:00:12:34:{number:02x}", "disk": "8:0" if self.kind == "lxc" else "vda", "iothreads": "2",
            "flavor": f"flavor-{name}",
        }  # fmt: skip
        if number % 2:
            labels["port"] = f"port-{name}"
        return Instance(name, VCPUS, 2048, labels=labels, settings=settings, service=service)  # type: ignore[arg-type]


PLACES = st.sampled_from(
    [
        *(Place("xen", scheduler=scheduler) for scheduler in ("credit", "credit2", "rtds")),
        *(Place(kind, cgroup) for kind in ("kvm", "lxc") for cgroup in (1, 2)),
        *(Place("lxc", cgroup, kernel="6.1.0") for cgroup in (1, 2)),
        Place("kvm", uplink=False),
        *(Place("kvm", cgroup, target="openstack") for cgroup in (1, 2)),
        Place("xen", target="openstack"),
    ]
)
SERVICES = st.sampled_from(["latency", "throughput"])


def networks() -> st.SearchStrategy[NetworkSettings]:
    rates = st.floats(0.1, 1000)
    shaped = st.builds(
        lambda mode, rate, more: NetworkSettings(mode, rate, None if more is None else rate + more),
        st.sampled_from(["shared", "dedicated"]), rates, st.none() | st.floats(0, 500),
    )  # fmt: skip
    return st.just(NetworkSettings()) | shaped


def isolations() -> st.SearchStrategy[IsolationSettings]:
    cpus = st.lists(st.integers(0, PCPUS - 1), unique=True).map(lambda found: tuple(sorted(found)))
    return st.builds(
        IsolationSettings,
        pinning=st.none() | st.tuples(cpus, cpus).map(Pinning),
        cap_percent=st.none() | st.floats(0.1, 100 * VCPUS),
        weight=st.none() | st.integers(1, 65_535),
        network=st.none() | networks(),
        disk_limit_mb_s=st.none() | st.floats(0.001, 10_000),
    )


def complete(now: IsolationSettings, then: IsolationSettings) -> IsolationSettings:
    """What holds after `then` was applied on `now`."""
    return replace(now, **{f.name: value for f in fields(then) if (value := getattr(then, f.name)) is not None})
