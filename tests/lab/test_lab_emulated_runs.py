"""Runs on the emulated machine from end to end, but without Xen.

Servers of this machine are stopped by signals, and Dom0 answers with what a real one (Xen 4.17) gave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lab.campaign import read_campaign
from lab.emulated_xen import guests, pair_runs
from lab.emulated_xen.dom0_channel import Dom0Answer
from lab.emulated_xen.machine import FILES, XenMachine
from lab.runner import run_campaign
from models.data.dataset import load_dataset
from profiler.backends.sources import RecordedSource
from research.findings.lab_runs import LabRuns
from tests.lab.test_lab_dom0_source import RECORDING, Dom0OfARecording
from tests.profiler.recorded import recorded_readings

EXAMPLE = Path(__file__).parents[2] / "examples" / "campaigns" / "xen.yaml"
_ROW = "Domain-0                             0     {number}    {cpu}   {state}      21.5  {cpus} / all\n"


class PretendedDom0(Dom0OfARecording):
    """A Dom0 of four vCPUs whose xl knows what was set, and which stops and lets go on processes as domains."""

    def __init__(self, processes: dict[int, int]) -> None:
        super().__init__(RecordedSource(recorded_readings(RECORDING)))
        self.processes = processes
        self.paused: set[int] = set()
        self.online, self.cpus = 4, "all"
        self.commands: list[tuple[str, ...]] = []

    def switch(self, *, pause: Sequence[int] = (), resume: Sequence[int] = ()) -> None:
        for domain in pause:
            assert domain not in self.paused
            self.paused.add(domain)
            os.kill(self.processes[domain], signal.SIGSTOP)
        for domain in resume:
            self.paused.remove(domain)  # as Xen, which refuses to let go on who is not paused
            os.kill(self.processes[domain], signal.SIGCONT)

    def look(self, how: str, path: str) -> Any:
        return f"0-{self.online - 1}\n" if path == "/sys/devices/system/cpu/online" else super().look(how, path)

    def run(self, argv: Sequence[str], **more: object) -> Dom0Answer:
        self.commands.append(tuple(argv))
        printed = ""
        if list(argv) == ["xl", "vcpu-list", "Domain-0"]:
            rows = (
                _ROW.format(
                    number=number, cpu=number if number < self.online else "-",
                    state="-b-" if number < self.online else "--p", cpus=self.cpus,
                )
                for number in range(4)
            )  # fmt: skip
            printed = "Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\n"
            printed += "".join(rows)
        elif list(argv) == ["xl", "dmesg"]:
            asked = self.commands.count(("xl", "debug-keys", "g"))
            printed = grant_lists({1: 3 * asked, 2: asked})
        elif argv[1] == "debug-keys":
            pass
        elif argv[1] == "vcpu-set":
            self.online = int(argv[3])
        elif argv[1] == "vcpu-pin":
            self.cpus = argv[4] if argv[2] == "Domain-0" else self.cpus
        else:
            return super().run(argv, **more)
        return Dom0Answer(tuple(argv), 0, printed.encode(), "")


def grant_lists(held: dict[int, int]) -> str:
    """What Xen says of these domains' entries."""
    lines = ["gnttab_usage_print_all [ key 'g' pressed"]
    for domain, entries in held.items():
        lines += [f"grant-table for remote d{domain} (v1)", "  2 frames (64 max), 0 maptrack frames (1024 max)"]
        lines += ["[0x000]      0 0x79a02 0x00000002          0 0x079a02 0x19"] * entries
    return "".join(f"(XEN) {line}\n" for line in [*lines, "gnttab_usage_print_all ] done"])


class PretendedMachine:
    """Instead of QEMU: this process and its own network."""

    process = os.getpid()
    network = "/proc/self/ns/net"

    def __init__(self, dom0: PretendedDom0) -> None:
        self.dom0 = dom0


class PretendedGuest:
    """Instead of a domain: a loop that counts."""

    def __init__(self, number: int) -> None:
        self.name, self.domain, self.address = f"vm{number}", number, f"127.0.0.{number + 1}"
        self._objects = 1000

    def slab_objects(self) -> int:
        self._objects += 1
        return self._objects


@pytest.fixture
def dom0() -> Iterator[PretendedDom0]:
    argv = [sys.executable, "-I", "-S", str(FILES / "spin.py"), "serve"]
    with ExitStack() as opened:
        servers = [
            opened.enter_context(subprocess.Popen([*argv, f"127.0.0.{number + 1}", str(guests.SPIN_PORT)]))
            for number in (1, 2)
        ]
        for server in servers:
            opened.callback(server.kill)
        time.sleep(0.5)
        yield PretendedDom0({number: server.pid for number, server in enumerate(servers, start=1)})


def pretended(monkeypatch: pytest.MonkeyPatch, dom0: PretendedDom0) -> None:
    def booted(runs: pair_runs.EmulatedXenRuns) -> XenMachine:
        if runs._machine is None:
            runs._machine = cast("XenMachine", PretendedMachine(dom0))
            runs._guests = cast("list[guests.ServingDomain]", [PretendedGuest(1), PretendedGuest(2)])
            runs._working = frozenset({0, 1})
        return runs._machine

    monkeypatch.setattr(pair_runs.EmulatedXenRuns, "_booted", booted)
    monkeypatch.setattr("lab.emulated_xen.dom0_source._START_S", 0.0)
    for name in ("_MOST_STEAL", "_MOST_FOREIGN"):  # whoever else is on this machine
        monkeypatch.setattr(pair_runs, name, float("inf"))
    monkeypatch.setattr("lab.runner.check_ready", lambda *_: None)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: clients enter a network namespace")
def test_a_campaign_gives_rows_of_both_guests_from_turns_and_moves_dom0_for_each_run(
    tmp_path: Path, dom0: PretendedDom0, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended(monkeypatch, dom0)
    document = yaml.safe_load(EXAMPLE.read_text("utf-8")) | {
        "workloads": {"cpu": {"kind": "cpu"}}, "pairs": [["cpu", "cpu"]], "rounds": 1, "warmup_s": 0.1, "seconds": 1,
        "pinnings": {"2-1-1": {"driver": "0-1", "cpus": ["2"]}},
        "on_off": {"dwell_ms": 50, "guard_ms": 10, "fill_idle": True},
    }  # fmt: skip
    del document["groups"]
    document["emulated"] |= {"metrics_s": 0.1, "kernel_tables": True}
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    summary = run_campaign(
        read_campaign(path), tmp_path / "out", state=tmp_path / "state", stream=sys.stderr, quiet=True
    )
    assert (summary.finished, summary.failed) == (2, ())
    rows = load_dataset(tmp_path / "out").colocations
    assert [(row.run, row.platform) for row in rows] == [("2-1-1:cpu:cpu", "xen-emulated")]
    assert len(rows[0].outcomes) == 2
    assert all((outcome.solo or 0) > 0 and (outcome.colocated or 0) > 0 for outcome in rows[0].outcomes)
    again = run_campaign(read_campaign(path), tmp_path / "out", state=tmp_path / "state", stream=sys.stderr, quiet=True)
    assert (again.finished, again.failed) == (2, ())  # what was written is read again
    [run] = LabRuns.of([tmp_path / "out"]).runs("cpu", "cpu", where=lambda run: run.repeat == "1")
    for metric in ("grant_entries", "slab_objects"):  # at rest before clients are there, then with all at work
        before, after = (
            [run.metric("instance", metric + when, member.instance) for member in run.members]
            for when in ("_at_rest", "")
        )
        assert all(one is not None and other is not None and one < other
                   for one, other in zip(before, after, strict=True)), metric  # fmt: skip
    assert run.metric("instance", "grant_entries_most", run.members[0].instance) == 64 * 512
    assert ("xl", "vcpu-set", "Domain-0", "2") in dom0.commands
    assert ("xl", "vcpu-pin", "Domain-0", "all", "0-1") in dom0.commands
    assert ("xl", "vcpu-pin", "vm2", "all", "2") in dom0.commands
    assert dom0.paused <= {2}  # none but those without a part in the last run
