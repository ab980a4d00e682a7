"""What the agent takes from guests: requests per second of nginx under wrk, with the agent and without, in turns.

    python -m research.benchmarks.agent_overhead [--json] [--pairs N] [--seconds S] [--instances N]

nginx runs in a container on CPU 0 and wrk on CPU 1, at saturation; beside them stand light containers that the agent
reads every second. Within a pair the order alternates; "stopped" is SIGSTOP, so that nothing but its work differs.
The figure is the median of the pairs' ratios with its 95 % interval (order statistics).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from lab import network
from lab.control_groups import GroupMaker
from lab.errors import LabError, RunError
from lab.instances.lifecycle import socket_waits
from lab.processes import LabProcess, wait_until
from lab.resource_registry import ResourceRegistry, clean
from lab.statistics import describe
from lab.workloads import Site
from lab.workloads.web import WebWorkload
from profiler.observed import IsolationSettings
from research.benchmarks.agent_cost import PORTS, WARM_UP_S
from research.benchmarks.light_containers import STATE, LightContainers
from research.benchmarks.measuring import circumstances
from research.benchmarks.watched_processes import WatchedProgram, agent

SERVER_CPU, CLIENT_CPU = 0, 1
SETTLE_S = 1.5  # after the agent was stopped or went on
READY_S = 10.0


def main() -> None:
    """Print one sentence, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=100, help="light containers beside the server (100)")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each half of a pair (4)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        document = {**circumstances(), **measure(options.instances, options.pairs, options.seconds)}
    except (LabError, RuntimeError) as error:
        sys.exit(f"agent_overhead: {error}")
    if options.json:
        print(json.dumps(document, indent=1))
        return
    ratio = document["ratio"]
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(
        f"nginx serves {ratio['median']:.4f} of what it serves without the agent (95 % interval {ratio['lower']:.4f} to"
        f" {ratio['upper']:.4f}, {len(document['pairs'])} interleaved pairs of {options.seconds:g} s,"
        f" {document['off']['median']:,.0f} requests/s without); the agent reads {options.instances} other containers"
        f" every second; {document['machine']}; load of the host {document['load']:.2f}; {document['date']}"
    )


def measure(instances: int, pairs: int, seconds: float) -> dict[str, Any]:
    """Requests per second in interleaved pairs, with the agent and without."""
    measured: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, LightContainers(instances), _web(Path(folder)) as load:
        program = agent(PORTS[0], "--backend", "lxc")
        try:
            program.wait()
            time.sleep(WARM_UP_S)
            for pair in range(pairs):
                order = ("on", "off") if pair % 2 else ("off", "on")
                measured.append({which: _half(program, which, load, seconds) for which in order})
        finally:
            program.go_on()
            program.stop()
    return {
        "pairs": measured,
        "ratio": asdict(describe([pair["on"] / pair["off"] for pair in measured])),
        "off": asdict(describe([pair["off"] for pair in measured])),
        "load": os.getloadavg()[0],
    }


class _WrkLoad:
    """wrk against the server, from a namespace and a group of its own."""

    def __init__(self, web: WebWorkload, site: Site, groups: list[str], generators: str) -> None:
        self._web, self._site, self._groups, self._generators = web, site, groups, generators

    def run(self, seconds: float) -> float:
        """Requests per second; RunError when wrk fails."""
        command = self._web.work(self._site, seconds, None)
        program = LabProcess(command, groups=self._groups, network=self._generators, directory=self._site.directory)
        try:
            if not wait_until(lambda: program.returncode is not None, seconds + READY_S):
                raise RunError("wrk does not end")
            program.check()
            return self._web.read(program.output(), None).throughput
        finally:
            program.stop(0)


def _half(program: WatchedProgram, which: str, load: _WrkLoad, seconds: float) -> float:
    if which == "on":
        program.go_on()
    else:
        program.pause()
    time.sleep(SETTLE_S)
    return load.run(seconds)


@contextmanager
def _web(folder: Path) -> Iterator[_WrkLoad]:
    """nginx in a container, ready to serve."""
    state = STATE.with_name(f"{STATE.name}-web")
    clean(state)
    registry, maker, web = ResourceRegistry(state), GroupMaker(), WebWorkload()
    maker.prepare()
    server = None
    try:
        net = network.build(registry, [None], network.Wiring())
        site = Site(0, folder, folder, net.ports[0].address, 1)
        web.prepare(site)
        groups: list[list[str]] = []
        for load, cpu in ((False, SERVER_CPU), (True, CLIENT_CPU)):
            name = registry.group("web", load=load)
            registry.made("group", name)
            groups.append(maker.make(name, (cpu,), IsolationSettings(), None))
        server = LabProcess(web.server(site), groups=groups[0], network=net.ports[0].namespace, directory=folder)
        tables = Path(f"/proc/{server.pid}/net")
        if not wait_until(lambda: socket_waits(lambda table: (tables / table).read_text(), *web.listens), READY_S):
            raise RunError(f"nginx was not ready within {READY_S:.0f} s: {server.errors()}")
        yield _WrkLoad(web, site, groups[1], net.generators)
    finally:
        if server is not None:
            server.stop()
        registry.close()


if __name__ == "__main__":
    main()
