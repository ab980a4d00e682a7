"""Containers of the lab for tests, without a campaign: whoever uses them has nothing to clean up."""

from __future__ import annotations

import contextlib
import fcntl
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lab.campaign import Member
from lab.control_groups import GroupMaker
from lab.instances import RunSetup
from lab.instances.containers import ContainerInstances, LabContainer
from lab.processes import LabProcess, Program, wait_until
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from lab.workloads import CpuWorkload, Listens, Site, Workload
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import IsolationSettings

NOTHING = IsolationSettings()
PYTHON = (sys.executable, "-I", "-S", "-c")
SERVE = """
import socket, sys, time
time.sleep(float(sys.argv[2]))
own = socket.create_server(("", int(sys.argv[1])))
while True:
    time.sleep(1)
"""


@dataclass(frozen=True, slots=True)
class Server(CpuWorkload):
    """Listens on a port after some time, and answers a check that is given."""

    kind: ClassVar[str] = "test-server"
    port: int = 80
    after_s: float = 0.0
    command: tuple[str, ...] = ()
    check: tuple[str, ...] = ()

    @property
    def listens(self) -> Listens | None:
        return "tcp", self.port

    def server(self, _site: Site, /) -> list[str] | None:
        return list(self.command or (*PYTHON, SERVE, str(self.port), str(self.after_s)))

    def ready_check(self, _site: Site, /) -> list[str] | None:
        return list(self.check) or None


def placed(
    position: int, settings: IsolationSettings = NOTHING, cpus: tuple[int, ...] = (0,), clients: tuple[int, ...] = (1,)
) -> PlacedMember:
    return PlacedMember(f"one.{position + 1}", Member("one", "one", 1.0, 1, settings), cpus, clients, "solo:one")


def prepared_maker() -> GroupMaker:
    maker = GroupMaker()
    maker.prepare()
    return maker


@contextmanager
def registered() -> Iterator[tuple[ResourceRegistry, Path]]:
    """A registry with a state of its own and a scratch folder on the disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        registry = ResourceRegistry(Path(folder) / "state")
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        try:
            yield registry, scratch
        finally:
            registry.close()


@contextmanager
def containers(
    entries: Sequence[PlacedMember], workloads: Sequence[Workload] | None = None, **more: Any
) -> Iterator[list[LabContainer]]:
    """Containers that stand; without workloads nothing runs in them yet. More arguments are those of Setup."""
    with registered() as (registry, scratch):
        chosen = tuple(workloads or [CpuWorkload() for _ in entries])
        setup = RunSetup(registry, tuple(entries), chosen, scratch, **more)
        with ContainerInstances(setup, prepared_maker()) as made:
            yield [running for running in made.running if isinstance(running, LabContainer)]


def switch_of(made: Sequence[LabContainer]) -> str:
    """Name of the network namespace of these containers' switch."""
    return Path(made[0].generators).name.removesuffix("load") + "switch"


@contextmanager
def native_programs_alone() -> Iterator[None]:
    """Waits until no other test has native programs: they give the host's one network stack the lab's addresses."""
    with Path(tempfile.gettempdir(), "cotenant-native-programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def left_of(run: str, *files: str) -> list[str]:
    """Everything on this host whose name carries this run's id: groups, namespaces, interfaces, `programs_of` it."""
    roots = set(find_mounts(LiveSource()).values())
    paths = [str(path) for root in roots for path in Path(root).glob(f"*{run}*")]
    paths += [str(path) for path in Path("/run/netns").glob(f"*{run}*")]
    paths += [str(path) for path in Path("/sys/class/net").glob(f"*{run}*")]
    return paths + programs_of(run, *files)


def programs_of(run: str, *files: str) -> list[str]:
    """Processes in a group of this run, or which name it in these files of theirs (`cmdline`: those not dead yet)."""
    programs: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(run in (process / file).read_text(errors="replace") for file in files or ("cgroup",)):
                programs.append(f"{process}: {(process / 'comm').read_text().strip()}")
    return programs


_ECHO = """
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("", 7))
while True:
    data, whence = own.recvfrom(2000)
    own.sendto(data, whence)
"""
_ASK = """
import socket, sys, time
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(float(sys.argv[2]))
for attempt in range(3):
    begin = time.monotonic()
    own.sendto(b"x" * 64, (sys.argv[1], 7))
    try:
        own.recvfrom(2000)
    except (TimeoutError, ConnectionRefusedError):
        time.sleep(0.1)
    else:
        print((time.monotonic() - begin) * 1e3)
        break
"""


def echo(container: LabContainer, *, outside: bool = False) -> Program:
    """A program that sends UDP datagrams back: in the container, or beside the load generators."""
    start = container.start if outside else container.start_inside
    return start([*PYTHON, _ECHO])


def ask(container: LabContainer, address: str, timeout_s: float = 1.0) -> LabProcess:
    """A program that asks an echo; it prints the milliseconds of the first answer, nothing without one."""
    return container.start_inside([*PYTHON, _ASK, address, str(timeout_s)])


def answered_ms(asking: LabProcess) -> float | None:
    """What `ask` found, once it has ended."""
    if not wait_until(lambda: asking.returncode is not None, 20):
        raise AssertionError("asked for 20 s")
    asking.check()
    answer = asking.output()
    asking.stop(0)
    return float(answer) if answer else None
