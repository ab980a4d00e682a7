"""A small cloud of real containers with real agents, in which a day passes in minutes: what `cotenant demo` shows.

    python -m lab.living_cloud [--seconds S] [--begin-hour H] [--weight W] [--state DIR]

Hosts are control groups with a small part of this machine's CPUs; containers are control groups within them that work
as their kind does over a day. What each host's agent would push goes to standard output, one JSON object a line, after
a first line that says how time passes. It ends after S seconds, by a signal, or when the reader is gone, and leaves
nothing behind. It needs root and control groups, version 1 or 2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TextIO

from lab.control_groups import GroupMaker
from lab.errors import LabError, StopRequested
from lab.processes import LabProcess
from lab.resource_registry import DEFAULT_STATE, ResourceRegistry, clean
from lab.signals import deaf, stoppable
from profiler.agent.announcement import Announcer
from profiler.agent.http_client import ANNOUNCE, PATH, HttpAnswer, HttpError
from profiler.agent.loop import Agent, Log, Pace
from profiler.agent.push import Delivery
from profiler.agent.spool import Spool, samples_in
from profiler.backends import BackendError, LxcBackend
from profiler.backends.base import Counters, DomainCounters, HostCounters
from profiler.backends.host_description import HostDescription
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import DEFAULT_WEIGHT, Instance, IsolationSettings

FASTER = 120.0  # a second is two minutes, so that a window of five minutes is over in 2.5 s
DAY_S = 86_400 / FASTER
HOST_CPUS, HOST_MB = 2, 16_384.0
_REAL_CPUS = 0.16  # of a host …
_MOST = 0.5  # … and of this machine, by all of them
_WEIGHT = DEFAULT_WEIGHT // 2  # of a host by default: whatever else this machine does goes first
_PACE = Pace(interval_s=1.0, window_s=2.0)
_LONGEST_S = 2 * 3600.0
_GRACE_S = 0.4  # for each part of an agent to end
_SPOOL_BYTES = 1 << 24
_LOAD = str(Path(__file__).with_name("daily_load.py"))
_HALF_HOURS = 48
# The containers of each host, with their mean demand in CPUs of the host. Those on h1, h2 and h4 are each busy at the
# same hours: a host that looks free in the morning is not in the evening, and answers follow.
_CLOUD: Mapping[str, Mapping[str, float]] = {
    "h1": {"web-1": 0.48, "web-2": 0.45, "web-3": 0.42, "shop-1": 0.30},
    "h2": {"batch-1": 0.32, "batch-2": 0.30, "batch-3": 0.28},
    "h3": {"db-1": 0.50, "web-4": 0.32},
    "h4": {"shop-2": 0.50, "shop-3": 0.45, "shop-4": 0.45, "dev-1": 0.05},
    "h5": {"ci-1": 0.40, "db-2": 0.45, "batch-4": 0.25},
    "h6": {"db-3": 0.55, "db-4": 0.45, "dev-2": 0.06},
}
_MEMORY_MB = {"web": 1024.0, "shop": 1024.0, "db": 2048.0, "batch": 1024.0, "ci": 2048.0, "dev": 512.0}


@dataclass(frozen=True, slots=True)
class DayShape:
    """How busy a kind is, without a unit: a base, and hills of `(hour, hours wide, height)`."""

    base: float
    hills: tuple[tuple[float, float, float], ...] = ()

    def curve(self, mean: float, late_h: float) -> list[float]:
        """Demand at 48 times of the day, `late_h` hours later than others of the kind; at most one CPU."""
        values = []
        for number in range(_HALF_HOURS):
            hour = 24 * number / _HALF_HOURS - late_h
            hills = [((hour - at + 12) % 24 - 12, wide, high) for at, wide, high in self.hills]
            values.append(self.base + sum(high * math.exp(-((away / wide) ** 2) / 2) for away, wide, high in hills))
        scale = mean * _HALF_HOURS / sum(values)
        return [min(scale * value, 1.0) for value in values]


_SHAPES: Mapping[str, DayShape] = {
    "web": DayShape(0.15, ((11, 2.0, 1.0), (15.5, 2.5, 1.0))),
    "shop": DayShape(0.12, ((20, 1.8, 1.4),)),
    "db": DayShape(1.0, ((14, 4.0, 0.5),)),
    "batch": DayShape(0.04, ((3, 1.6, 1.2),)),
    "ci": DayShape(0.05, ((10, 0.7, 1.0), (13, 0.5, 0.8), (16.5, 0.8, 1.1))),
    "dev": DayShape(0.3, ((11, 0.4, 2.0), (17, 0.3, 2.0))),
}


class PartOfMachine:
    """One host as its agent sees it: only its own containers, and CPUs that are `slower` times as slow as real ones."""

    name = "lxc"

    def __init__(self, host: str, group: str, known: Mapping[str, Instance], slower: float) -> None:
        self.host = host
        self._group = group
        self._slower = slower
        self._source = LiveSource()
        self._inner = LxcBackend(self._source, host, known)
        self._groups = find_groups(self._source)

    def list_instances(self) -> list[Instance]:
        return self._inner.list_instances()

    def read_counters(self) -> Counters:
        try:
            busy_ns = round(self._groups.cpu_ns(self._group) * self._slower)
        except OSError as error:
            raise BackendError(f"group {self._group} cannot be read: {error.strerror}") from None
        counters = self._inner.read_counters()
        whole = HostCounters(None, busy_ns, 0, HOST_CPUS, absent={"events": "not counted"})
        instances = {name: self._scaled(domain) for name, domain in counters.instances.items()}
        return replace(counters, instances=instances, driver=None, whole=whole)

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        """Without pins: the CPUs of the machine are not those of the host."""
        return replace(self._inner.read_isolation(instance), pinning=None)

    def close(self) -> None:
        self._inner.close()

    def _scaled(self, domain: DomainCounters) -> DomainCounters:
        """With CPU time as time of the host's slower CPUs. Waiting is time by the clock, and stays as it is."""
        tasks = {name: replace(task, run_ns=round(task.run_ns * self._slower)) for name, task in domain.tasks.items()}
        since = domain.further_since and (self._system(domain.further_since[0]), domain.further_since[1])
        cpu_ns = None if domain.cpu_ns is None else round(domain.cpu_ns * self._slower)
        return replace(domain, tasks=tasks, cpu_ns=cpu_ns, further=self._system(domain.further), further_since=since)

    def _system(self, further: Mapping[str, int]) -> Mapping[str, int]:
        return {name: round(ns * self._slower) if name == "system_ns" else ns for name, ns in further.items()}


class LineWriter:
    """Writes lines of JSON to a stream; all agents share it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.unread = threading.Event()  # the reader is gone

    def write(self, document: Mapping[str, Any]) -> None:
        """Raises OSError when the reader is gone."""
        text = json.dumps(document, separators=(",", ":")) + "\n"
        with self._lock:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self.unread.set()
                raise


class LineConnection:
    """Where an agent pushes to: each post becomes a line with the seconds since `begin_s`, and is acknowledged. Windows
    become samples, as in the recorded day."""

    def __init__(self, lines: LineWriter, begin_s: float) -> None:
        self._lines = lines
        self._begin_s = begin_s

    def post(self, body: bytes, to: str = PATH) -> HttpAnswer:
        document = json.loads(body)
        if to == PATH:
            document = {"samples": samples_in(document)}
        try:
            self._lines.write({"at": round(time.time() - self._begin_s, 3), "to": to, "body": document})
        except (OSError, ValueError) as error:
            raise HttpError("connection", f"the reader is gone ({error})") from None
        samples = {"accepted": len(document.get("samples", ())), "duplicate": 0, "dropped": 0}
        return HttpAnswer(200, json.dumps({"notes": []} if to == ANNOUNCE else samples).encode(), None)

    def interrupt(self) -> None:
        """Nothing to do: a line is written at once."""

    def close(self) -> None:
        """Nothing to do: other agents still write to the stream."""


class LivingCloud:
    """Context manager: hosts, containers that work, and an agent for each host that writes lines. It leaves nothing."""

    def __init__(self, state: Path, begin_h: float, seconds: float, weight: int = _WEIGHT) -> None:
        self._state = state
        self._weight = weight
        self._begin_h = begin_h
        self._seconds = seconds
        self._quota_cpus = min(_REAL_CPUS, _MOST * (os.cpu_count() or 1) / len(_CLOUD))
        self._slower = HOST_CPUS / self._quota_cpus
        self._processes: list[LabProcess] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> LivingCloud:
        with self._stack as stack:
            maker = GroupMaker()
            maker.prepare()
            clean(self._state)
            self._registry = ResourceRegistry(self._state)
            stack.callback(self._registry.close)
            self._folder = self._registry.directory(Path(gettempdir()))
            self._registry.made("directory", str(self._folder))
            self._folder.mkdir(mode=0o700)
            start = time.monotonic() + 0.5
            self.begin_s = time.time() + 0.5
            self._known = {host: self._populate(host, maker, start) for host in _CLOUD}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with deaf():
            self._stack.close()

    def header(self) -> Mapping[str, Any]:
        """How time passes in the lines that follow, and what they come from."""
        return {
            "faster": FASTER, "begin_h": self._begin_h, "begin_s": round(self.begin_s, 3),
            "made": f"{sum(map(len, _CLOUD.values()))} containers on {len(_CLOUD)} hosts of {HOST_CPUS} CPUs, each "
            f"{self._quota_cpus / HOST_CPUS:g} of a real one, on a machine with {os.cpu_count()} CPUs and Linux "
            f"{'.'.join(platform.release().split('.')[:2])}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        }  # fmt: skip

    def tell(self, lines: LineWriter) -> None:
        """Let an agent on each host write what it sees, until the time is over or the reader is gone."""
        log = Log(as_json=False)
        with contextlib.ExitStack() as stack:
            for host, known in self._known.items():
                stack.enter_context(self._agent(host, known, lines, log))
            while time.time() < self.begin_s + self._seconds and not lines.unread.wait(1.0):
                for process in self._processes:
                    process.check()

    def _populate(self, host: str, maker: GroupMaker, start: float) -> dict[str, Instance]:
        """Make a host and start its containers; returns these by control group."""
        group = self._registry.group(host)
        self._registry.made("group", group)
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        settings = IsolationSettings(cap_percent=100 * self._quota_cpus, weight=self._weight)
        maker.make(group, cpus, settings, None)
        maker.open_up(group)
        known = {}
        for name, mean in _CLOUD[host].items():
            kind = name.partition("-")[0]
            path = f"{group}/{name}"
            join = maker.make(path, cpus, IsolationSettings(), None)
            self._start(join, name, kind, mean, start)
            known[path] = Instance(name, 1, _MEMORY_MB[kind], host=host)
        return known

    def _start(self, join: Sequence[str], name: str, kind: str, mean: float, start: float) -> None:
        late_h = random.Random(name).gauss(0, 0.4)  # noqa: S311 - the same each time
        curve = [f"{cpus / self._slower:.6f}" for cpus in _SHAPES[kind].curve(mean, late_h)]
        seed = str(random.Random(name).randrange(1 << 31))  # noqa: S311
        times = [f"{moment:.6f}" for moment in (start, start + self._seconds, DAY_S, self._begin_h)]
        command = [sys.executable, "-I", "-S", "-B", _LOAD, *times, seed, *curve]
        process = LabProcess(command, groups=join, network="/proc/self/ns/net", directory=self._folder)
        self._stack.callback(process.stop, 0)
        self._processes.append(process)

    @contextlib.contextmanager
    def _agent(self, host: str, known: Mapping[str, Instance], lines: LineWriter, log: Log) -> Iterator[None]:
        labels = {"demo": f"each CPU is {self._quota_cpus / HOST_CPUS:g} of one of this machine"}
        description = HostDescription("lxc", pcpus=HOST_CPUS, memory_mb=HOST_MB, labels=labels)
        announcer = Announcer(lambda: description, log, version="demo", machine=host)
        backend = PartOfMachine(host, self._registry.group(host), known, self._slower)
        spool = Spool(self._folder / host, _SPOOL_BYTES, log)
        shipping = Delivery(spool, LineConnection(lines, self.begin_s), log, announcer)
        agent = Agent(backend, _PACE, shipping.deliver, log, after_reading=announcer.look)
        thread = threading.Thread(target=agent.run, name=host, daemon=True)
        thread.start()
        try:
            yield
        finally:
            agent.stop()
            thread.join(2 * _PACE.interval_s)
            shipping.close(_GRACE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=_LONGEST_S, help="end after so long (7200)")
    parser.add_argument("--begin-hour", type=float, default=0.0, help="hour of the day at which it begins (0)")
    parser.add_argument(
        "--weight",
        type=int,
        default=_WEIGHT,
        help="of each host among all that runs here (128; a recording: 65535)",
    )
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder with lists of created objects")
    options = parser.parse_args(arguments)
    lines = LineWriter(sys.stdout)
    try:
        with stoppable(), LivingCloud(options.state, options.begin_hour, options.seconds, options.weight) as cloud:
            lines.write(cloud.header())
            cloud.tell(lines)
    except StopRequested:
        return 130
    except BrokenPipeError:
        return 0
    except (LabError, BackendError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # without waiting for threads that hang in a reading
