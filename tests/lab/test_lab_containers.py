"""Containers of the lab: servers side by side, and what happens when one fails or the lab is to stop."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_groups import GroupMaker, group_places
from lab.errors import RunError, StopRequested
from lab.instances import RunSetup
from lab.instances.containers import ContainerInstances
from lab.processes import LabProcess, call, wait_until
from lab.resource_registry import ResourceRegistry
from lab.workloads import CpuWorkload, Site, WebWorkload, Workload
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from tests.lab.container_run import PYTHON, SERVE, Server, containers, left_of, placed, prepared_maker, registered

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("runs")]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Ids of the runs of a test, of which nothing may be left."""
    ids: list[str] = []
    init = ContainerInstances.__init__

    def noting(self: ContainerInstances, setup: RunSetup, maker: GroupMaker) -> None:
        ids.append(setup.registry.run)
        init(self, setup, maker)

    monkeypatch.setattr(ContainerInstances, "__init__", noting)
    yield ids
    assert ids
    for run in ids:
        assert left_of(run) == []


@pytest.mark.measured
def test_servers_start_side_by_side() -> None:
    begin = time.monotonic()
    with containers([placed(number) for number in range(3)], [Server(after_s=0.6)] * 3) as made:
        assert all(container.listens("tcp", 80) for container in made)
    assert time.monotonic() - begin < 1.7  # one after the other would take 1.8 s


def test_a_server_is_ready_when_it_answers_the_generators_side(tmp_path: Path) -> None:
    flag = tmp_path / "asked"
    script = (
        "import sys, pathlib, socket; socket.create_connection(('10.77.0.10', 80), 1)\np = pathlib.Path(sys.argv[1])\n"
    )
    script += "known = p.exists(); p.write_text('x'); sys.exit(0 if known else 1)"
    with containers([placed(0)], [Server(check=(*PYTHON, script, str(flag)))]):
        assert flag.exists()  # failed once, was asked again


def test_the_hosts_own_server_on_the_port_is_neither_in_the_way_nor_mistaken_for_the_instances() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        begin = time.monotonic()
        with containers([placed(0)], [Server(port=port, after_s=0.5)]) as (container,):
            assert time.monotonic() - begin > 0.5
            assert container.listens("tcp", port)


@pytest.mark.measured
def test_a_port_that_is_taken_inside_the_instance_is_said_with_its_name() -> None:
    twice = (*PYTHON, SERVE.replace("while", "socket.create_server(('', 80))\nwhile"), "80", "0")
    started = time.monotonic()
    with (
        pytest.raises(RunError, match=r"of one\.2 ended with status 1: .*Address already in use"),
        containers([placed(0), placed(1)], [Server(), Server(command=twice)]) as (_, other),
    ):
        wait_until(lambda: other.complaint() is not None, 20)
    assert time.monotonic() - started < 10


def test_a_server_that_does_not_get_ready_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContainerInstances, "ready_within_s", 0.5)
    with (
        pytest.raises(RunError, match=r"of one\.1 was not ready within"),
        containers([placed(0)], [Server(after_s=60)]),
    ):
        raise AssertionError("unreachable")


@pytest.mark.parametrize("follows", [None, RunError("wrk could not load the server")])
def test_a_server_that_dies_in_the_middle_is_named_whatever_else_failed(follows: RunError | None) -> None:
    with (
        pytest.raises(RunError, match=r"^nginx of one\.1 ended with status -9: ") as caught,
        containers([placed(0)], [WebWorkload(1)]) as (container,),
    ):
        assert isinstance(container.server, LabProcess)
        os.kill(container.server.pid, signal.SIGKILL)
        assert wait_until(lambda: container.complaint() is not None, 60)
        if follows:
            raise follows
    assert caught.value.__cause__ is follows


class Stopped(Server):
    """The lab is stopped while it asks whether this server is ready."""

    def ready_check(self, _site: Site, /) -> list[str] | None:
        raise StopRequested("SIGINT")


@pytest.mark.parametrize("stuck", [False, True], ids=["removable", "something cannot be removed"])
def test_stopping_while_servers_start_removes_everything(monkeypatch: pytest.MonkeyPatch, stuck: bool) -> None:
    if stuck:
        _cannot_remove(monkeypatch)
    with pytest.raises(StopRequested), containers([placed(0), placed(1)], [Server(), Stopped()]):
        raise AssertionError("unreachable")


def test_a_stop_request_is_not_turned_into_a_failed_run() -> None:
    with pytest.raises(StopRequested), containers([placed(0)], [Server()]) as (container,):
        assert isinstance(container.server, LabProcess)
        os.kill(container.server.pid, signal.SIGKILL)
        assert wait_until(lambda: container.complaint() is not None, 60)
        raise StopRequested("SIGTERM")


@pytest.mark.parametrize(
    ("follows", "message"),
    [
        (None, "^it cannot be removed$"),
        (RunError("wrk could not load the server"), "^wrk could not load the server$"),
        (StopRequested("SIGTERM"), "^SIGTERM$"),
    ],
)
def test_what_cannot_be_removed_is_the_runs_error_only_where_nothing_else_ended_it(
    monkeypatch: pytest.MonkeyPatch, follows: BaseException | None, message: str
) -> None:
    """A stop request that were lost so would count as a run that failed, and be followed by a second try."""
    _cannot_remove(monkeypatch)
    with pytest.raises((RunError, StopRequested), match=message), containers([placed(0)]):
        if follows:
            raise follows


def _cannot_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = ResourceRegistry.remove_run

    def failing(registry: ResourceRegistry) -> None:
        remove(registry)
        raise RunError("it cannot be removed")

    monkeypatch.setattr(ResourceRegistry, "remove_run", failing)


def test_a_collision_of_names_leaves_what_was_there_before() -> None:
    with registered() as (registry, scratch):
        name = registry.network("1")
        call(["ip", "netns", "add", name])
        try:
            workloads: tuple[Workload, ...] = (CpuWorkload(), CpuWorkload())
            setup = RunSetup(registry, (placed(0), placed(1)), workloads, scratch)
            with pytest.raises(RunError, match="is there already"), ContainerInstances(setup, prepared_maker()):
                raise AssertionError("unreachable")
            assert left_of(registry.run) == [f"/run/netns/{name}"]
        finally:
            call(["ip", "netns", "delete", name])


def test_a_capped_host_gives_all_its_instances_together_no_more_cpu_time_than_the_cap() -> None:
    spin = [*PYTHON, "while True: pass"]
    entries = [placed(position, cpus=(cpu,)) for position, cpu in enumerate(sorted(os.sched_getaffinity(0))[:2])]
    with containers(entries, host_cap_percent=40.0) as made:
        programs = [container.start_inside(spin) for container in made]
        groups = find_groups(LiveSource())
        assert wait_until(lambda: all(groups.cpu_ns(container.group) > 0 for container in made), 20.0)
        began, before = time.monotonic(), sum(groups.cpu_ns(container.group) for container in made)
        time.sleep(1.0)
        used_ns = sum(groups.cpu_ns(container.group) for container in made) - before
        # a period of the cap more than in the time between the readings, and what each CPU may have taken in advance
        assert used_ns <= 0.4 * 1e9 * (time.monotonic() - began + 0.1) + len(made) * 1e7
        for program in programs:
            program.stop(0)


def test_idle_cpus_are_kept_busy_by_programs_of_the_lowest_priority() -> None:
    with registered() as (registry, scratch):
        setup = RunSetup(registry, (placed(0),), (CpuWorkload(),), scratch, fill_idle=True)
        with ContainerInstances(setup, prepared_maker()) as made:
            groups = [registry.group(f"idle.{cpu}") for cpu in sorted(os.sched_getaffinity(0))]
            places = [path for group in groups for path in group_places(group) if (path / "cpu.idle").exists()]
            assert [(path / "cpu.idle").read_text().strip() for path in places] == ["1"] * len(groups)
            assert wait_until(lambda: all((path / "cgroup.procs").read_text() for path in places), 5.0)
            counted = made.usage_files()
            assert not counted or all(any(group in path for path in counted) for group in groups)
