"""Programs on the host itself: the same path to the generators, nothing held back, nothing left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.errors import PreparationError
from lab.instances import RunSetup
from lab.instances.containers import LabContainer
from lab.instances.native import NativeInstances
from lab.network import Wiring
from lab.processes import call, wait_until
from lab.schedule import PlacedMember
from lab.workloads import CpuWorkload, Workload
from profiler.observed import IsolationSettings
from tests.lab.container_run import (
    Server,
    answered_ms,
    ask,
    echo,
    left_of,
    native_programs_alone,
    placed,
    prepared_maker,
    registered,
)
from tests.servers.running import free_port

pytestmark = pytest.mark.lab


@contextmanager
def _native(entries: list[PlacedMember], workloads: list[Workload], **more: Any) -> Iterator[list[LabContainer]]:
    with native_programs_alone(), registered() as (registry, scratch):
        setup = RunSetup(registry, tuple(entries), tuple(workloads), scratch, **more)
        with NativeInstances(setup, prepared_maker()) as made:
            yield [running for running in made.running if isinstance(running, LabContainer)]
        assert left_of(registry.run) == []


def test_native_programs_are_on_the_host_and_reach_the_generators_by_the_same_path() -> None:
    wiring = Wiring(driver_cpus=(0,))
    with _native([placed(0), placed(1)], [CpuWorkload(), Server(port=free_port())], wiring=wiring) as made:
        for container in made:
            answering = echo(container, outside=True)
            asking = ask(container, "10.77.0.1")
            assert Path(f"/proc/{asking.pid}/ns/net").stat().st_ino == Path("/proc/self/ns/net").stat().st_ino
            assert answered_ms(asking) is not None
            answering.stop(0)
        assert made[1].listens(*(made[1].workload.listens or ("tcp", 0)))
        assert made[1].site.address == "10.77.0.11"


@pytest.mark.measured
def test_native_programs_share_a_line_as_others_do() -> None:
    with _native([placed(0)], [CpuWorkload()], wiring=Wiring(line_mbit=2.0)) as (container,):
        receiver = container.start(["iperf3", "-s", "-1", "-i", "0.5", "-f", "k", "--forceflush"])
        assert wait_until(lambda: "listening" in receiver.output(), 5)
        sender = container.start_inside(["iperf3", "-c", "10.77.0.1", "-t", "20"])
        time.sleep(2.5)
        rates = [float(line.split("Kbits/sec")[0].split()[-1]) for line in receiver.output().splitlines()
                 if "Kbits/sec" in line][2:]  # fmt: skip
        receiver.stop(0)
        sender.stop(0)
    assert sum(rates) / len(rates) == pytest.approx(2000 * 0.956, rel=0.10)


def test_native_programs_with_limits_are_refused() -> None:
    with (
        pytest.raises(PreparationError, match=r"one\.1 has limits, which native programs never have"),
        _native([placed(0, IsolationSettings(cap_percent=50))], [CpuWorkload()]),
    ):
        raise AssertionError("unreachable")


def test_a_host_that_uses_the_labs_addresses_gets_no_native_programs() -> None:
    with registered() as (registry, scratch), native_programs_alone():
        native = NativeInstances(RunSetup(registry, (placed(0),), (CpuWorkload(),), scratch), prepared_maker())
        call(["ip", "route", "add", "blackhole", "10.77.0.128/25"])
        try:
            with pytest.raises(PreparationError, match="this host has routes to"), native:
                raise AssertionError("unreachable")
        finally:
            call(["ip", "route", "delete", "blackhole", "10.77.0.128/25"])
        assert left_of(registry.run) == []
