"""`cotenant history cadvisor` from a real cAdvisor that watches real containers, scraped by a real Prometheus."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.domain import Instance
from lab.control_groups import GroupMaker, device_of, remove_group
from lab.processes import LabProcess
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import IsolationSettings
from tests.advisor.short_history import HISTORY_S, WINDOW_S, ShortHistory
from tests.servers.exporters import scraped
from tests.servers.prometheus import Prometheus
from tests.servers.real_containers import NEIGHBOUR, Podman, RealContainer, podman
from tests.servers.running import NotInstalled, as_child

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
POD, LXC = "0b7a9f0e-1111-4222-8333-444455556666", "cotenant-test-mail"
NEAR = 0.2  # windows of ten seconds with few readings in each, on a machine that may be busy
SPIN = "while :; do :; done"
COPY = """busybox dd if=/dev/zero of=/data bs=64k count=64
while :; do busybox dd if=/data of=/copy bs=64k count=64 iflag=direct oflag=direct; busybox sleep 0.2; done"""
TURNS = ["perl", "-MTime::HiRes=time,sleep", "-e", "while (1) { my $end = time + 0.1; 1 while time < $end; sleep 0.3 }"]
SENDS = [
    "perl", "-e",
    "use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0); my $to = pack_sockaddr_in(9, inet_aton($ARGV[0]));"
    "while (1) { send($s, 'x' x 1000, 0, $to); select(undef, undef, undef, 0.002) }", NEIGHBOUR,
]  # fmt: skip
# cAdvisor's own list but for `sched`, which counts how long its processes wait.
LEFT_OUT = "advtcp,cpu_topology,cpuset,hugetlb,memory_numa,process,referenced_memory,resctrl,tcp,udp"
OWN: Mapping[str, Any] = {"listen": "--listen", "root": True, "every": "2s"}  # options of `scraped`


class Kernel:
    """What the kernel counts of the same containers: CPU seconds by name, and Mbit and MB of one of them."""

    def __init__(self, groups: Mapping[str, str], one: RealContainer) -> None:
        self._groups, self._one = groups, one
        self._rows: list[Mapping[str, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def per_s(self, name: str, end_s: float) -> float:
        """The mean rate of the minute before a time."""
        times, values = [row["at"] for row in self._rows], [row[name] for row in self._rows]
        then, now = np.interp([end_s - HISTORY_S, end_s], times, values)
        return float(now - then) / HISTORY_S

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.5):
            self._rows.append({"at": time.time(), **self._read()})

    def _read(self) -> dict[str, float]:
        groups = find_groups(LiveSource())
        used = {name: groups.cpu_ns(group) / 1e9 for name, group in self._groups.items()}
        return {**used, "net_mbit": self._one.sent_bytes() * 8 / 1e6, "disk_mb_s": self._one.disk_bytes() / 1e6}


@dataclass(frozen=True, slots=True)
class Watched:
    """One cAdvisor alone and one as the kubelet has it, of the same containers."""

    alone: Prometheus
    kubelet: Prometheus
    db: RealContainer
    kernel: Kernel


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ExitStack() as stack:
        try:
            yield _watched(stack, stack.enter_context(podman()), tmp_path_factory.mktemp("inside"))
        except NotInstalled as missing:
            pytest.skip(str(missing))


def _watched(stack: ExitStack, runtime: Podman, folder: Path) -> Watched:
    disk = device_of(Path("/var/tmp"))
    # Without any limit of a disk recent kernels do not count what groups of version 1 read and write there.
    limit = ["--device-read-bps", f"/dev/{Path('/sys/dev/block', disk).resolve().name}:10gb"] if disk else []
    pod = ("--label", "io.kubernetes.pod.namespace=shop", "--label", "io.kubernetes.pod.name=web-7")
    web = runtime.run("cotenant-test-web", SPIN, "--cpus", "0.3", *pod)
    db = runtime.run("cotenant-test-db", COPY, *limit, parent=f"cotenant-test-pod{POD}")
    sender = subprocess.Popen([*as_child(drop=False), "nsenter", f"--net=/proc/{db.pid}/ns/net", *SENDS])
    stack.callback(sender.wait)
    stack.callback(sender.kill)
    kernel = Kernel({"web": web.group, "db": db.group, "mail": _lxc(stack, folder)}, db)
    stack.callback(kernel.stop)
    every = ["--allow_dynamic_housekeeping=false", f"--podman=unix://{runtime.socket}"]
    alone = stack.enter_context(scraped("cadvisor", *every, f"--disable_metrics={LEFT_OUT}", **OWN))
    kubelet = stack.enter_context(scraped("cadvisor", *every, "--kubelet", **OWN))
    time.sleep(HISTORY_S + 2 * WINDOW_S)
    return Watched(alone, kubelet, db, kernel)


def _lxc(stack: ExitStack, folder: Path) -> str:
    """A control group as LXC names those of its containers, with a process that demands a quarter of a CPU."""
    group = f"lxc.payload.{LXC}"
    stack.callback(remove_group, group)
    joined = GroupMaker().make(group, tuple(sorted(os.sched_getaffinity(0))), IsolationSettings(), None)
    process = LabProcess(TURNS, groups=joined, network=f"/proc/{os.getpid()}/ns/net", directory=folder)
    stack.callback(process.stop, 0)
    return group


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ShortHistory:
    return ShortHistory(monkeypatch, tmp_path)


def test_cadvisor_alone_tells_what_containers_use_as_the_kernel_counts_it(
    watched: Watched, history: ShortHistory
) -> None:
    db = watched.db.id[:12]  # as an agent calls a container whose name it does not know
    web = Instance("u-1", 1, host="h1", labels={"name": "cotenant-test-web"})
    known = history.of("cadvisor", watched.alone, web, Instance(db, 2, host="h1"), Instance(LXC, 2, host="h1"))

    def counted(name: str) -> float:
        return watched.kernel.per_s(name, known.end_s)

    assert set(known.said["changed"]) == {"u-1", db, LXC}
    assert set(known.demands[db]) == {"cpu", "net_mbit", "disk_mb_s"}
    assert known.said["silent"] == []  # waiting and being throttled are reported, too
    assert known.demands[db]["net_mbit"].mean == pytest.approx(counted("net_mbit"), rel=NEAR)
    assert known.demands[db]["disk_mb_s"].mean == pytest.approx(counted("disk_mb_s"), rel=NEAR)
    for name, called in (("u-1", "web"), (db, "db"), (LXC, "mail")):
        used, wanted = counted(called), known.demands[name]["cpu"].mean
        assert (1 - NEAR) * used <= wanted, (name, used, wanted)
    assert known.demands["u-1"]["cpu"].mean <= 1  # its only vCPU, however long it waited


def test_the_kubelets_series_are_of_pods(watched: Watched, history: ShortHistory) -> None:
    """Without waiting, so that demand is what was used."""
    pods = Instance("shop.web-7", 1, host="h1"), Instance(POD, 2, host="h1"), Instance(LXC, 2, host="h1")
    known = history.of("cadvisor", watched.kubelet, *pods)
    assert known.said["silent"] == ["waiting"]
    for name, called in (("shop.web-7", "web"), (POD, "db"), (LXC, "mail")):
        used = watched.kernel.per_s(called, known.end_s)
        assert known.demands[name]["cpu"].mean == pytest.approx(used, rel=NEAR), name
    assert known.demands[POD]["net_mbit"].mean > 0
