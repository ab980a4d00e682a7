"""Runs of a campaign on one emulated Xen machine: two guests, driver domain and guests pinned anew for each run.

A run of a pair has a window with both at work, over which the eight metrics are read. Then come turns in which both,
only the first, or only the second work, while the others are paused. T/B comes from these turns, so together and alone
are of the same seconds. A run of one is a window in which the other guest is paused.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lab.campaign import Campaign, EmulatedXen, OnOff
from lab.control_groups import GroupMaker
from lab.dom0_cpus import DOM0, Dom0Cpus, move_commands
from lab.emulated_xen.client_progress import ClientProgress, HostUsage, StateSpell
from lab.emulated_xen.dom0_source import Dom0Snapshots
from lab.emulated_xen.guests import SPIN_PORT, WEB_PORT, ServingDomain, start_guests
from lab.emulated_xen.machine import FILES, XenMachine, boot
from lab.emulated_xen.parts import prepare
from lab.emulated_xen.thread_limits import limit_threads
from lab.environment import MADE
from lab.errors import PreparationError, RunError
from lab.guests.image import build_image, cache_directory
from lab.guests.renaming_backend import RenamingBackend
from lab.idle_filler import IdleFiller
from lab.journal import Journal
from lab.measure import KERNEL_TABLES, MetricValue, RunMeasurement, metric_values
from lab.on_off.making import on_off_measurement
from lab.on_off.measure import OnOffRun, OnOffWindow
from lab.on_off.outcomes import state_outcomes
from lab.on_off.states import all_states, blocks_for, draw_order
from lab.processes import LabProcess, wait_until
from lab.records import Record, RunConditions, StateOutcome
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember, Run
from lab.single_run import RunMaker
from lab.workloads import WebWorkload
from profiler.backends import BackendError
from profiler.backends.xen.backend import XenBackend
from profiler.backends.xen.scheduling import LAG_S
from profiler.collectors import collect
from profiler.observed import format_cpus, parse_cpus
from profiler.parse.proc import parse_grant_tables

_END_S = 5.0  # for a client that was asked to end
_ONLINE_S = 20.0  # Dom0's kernel takes vCPUs on and off line by itself
_LOOP_UNIT = "1000 turns/s"
# Percent of a CPU in one window; counters go in ticks of 10 ms, and the softirqs of packets count as others' work.
_MOST_STEAL = 20.0
_MOST_FOREIGN = 40.0


class EmulatedXenRuns(RunMaker):
    """Runs on one emulated machine, which is booted for the first of them and ends with the registry."""

    failures = (RunError, BackendError, OSError)

    def __init__(
        self, campaign: Campaign, journal: Journal, registry: ResourceRegistry, scratch: Path, maker: GroupMaker,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(campaign, journal, registry, scratch, maker, say)
        if campaign.emulated is None or campaign.on_off is None:
            raise PreparationError("the campaign names no machine to emulate")
        self._shape: EmulatedXen = campaign.emulated
        self._on_off: OnOff = campaign.on_off
        self._units = {
            name: workload.unit if isinstance(workload, WebWorkload) else _LOOP_UNIT
            for name, workload in campaign.workloads.items()
        }
        self._open = ExitStack()
        self._machine: XenMachine | None = None
        self._guests: list[ServingDomain] = []
        self._snapshots: Dom0Snapshots | None = None
        self._working: frozenset[int] = frozenset()  # guests that are not paused
        registry.at_end(self._open.close)

    def _make(self, run: Run, number: int, round_started: str) -> Record:
        machine = self._booted()
        began = time.monotonic()
        around = RunConditions(round_started, os.getloadavg()[0])
        self._place(machine, run)
        measured, states = self._measured(machine, run, number)
        return Record.of(run, number, measured, {}, self._units, time.monotonic() - began, around, states)

    def _booted(self) -> XenMachine:
        if self._machine is None:
            parts = prepare(cache_directory() / "xen")
            image = build_image(["nginx"])
            machine = self._open.enter_context(boot(parts, self._scratch, self._shape, image.initramfs))
            self._guests = start_guests(machine, image, self._scratch, self._campaign.guests.memory_mb)
            self._working = frozenset(range(len(self._guests)))
            if self._shape.pcpu_percent is not None:
                limit_threads(machine.cpu_threads(), self._shape.pcpu_percent, self._registry)
            self._machine = machine
            version = re.search(r"^xen_version *: *(.*?) *$", machine.dom0.run(["xl", "info"]).text, re.MULTILINE)
            self._journal.note(MADE, {
                "emulated": "yes: Xen and all domains inside QEMU without hardware virtualisation (TCG)",
                "xen": version[1] if version else "",
                "scheduler": self._shape.scheduler, "emulated_pcpus": str(self._shape.pcpus),
                "pcpu_percent": str(self._shape.pcpu_percent),
            })  # fmt: skip
        return self._machine

    def _clear(self) -> None:
        """The next try has a new machine."""
        self._machine = self._snapshots = None
        self._open.close()

    def _place(self, machine: XenMachine, run: Run) -> None:
        """Pin Dom0 and the guests for this run, and pause the guests that have no part in it."""
        driver = run.placed[0].driver or tuple(range(self._shape.pcpus))
        now = Dom0Cpus.parse(machine.dom0.run(["xl", "vcpu-list", DOM0]).checked().text)
        commands = move_commands(now.online, len(driver), driver)
        for guest, entry in zip(self._guests, run.placed, strict=False):
            commands.append(["xl", "vcpu-pin", guest.name, "all", format_cpus(entry.cpus)])
        for command in commands:
            machine.dom0.run(command).checked()
        if not wait_until(lambda: _online(machine) == len(driver), _ONLINE_S):
            raise RunError(f"Dom0 has {_online(machine)} vCPUs and not {len(driver)}, although xl set them")
        if self._shape.metrics_s and (self._snapshots is None or now.online != len(driver)):
            self._snapshots = Dom0Snapshots(machine.dom0)
            self._snapshots.learn()
        self._switch(machine, frozenset(range(len(run.placed))))

    def _switch(self, machine: XenMachine, working: frozenset[int]) -> None:
        """Let exactly these guests work. Xen counts pauses, and refuses to resume a domain that is not paused."""
        pause = [self._guests[number].domain for number in sorted(self._working - working)]
        resume = [self._guests[number].domain for number in sorted(working - self._working)]
        machine.dom0.switch(pause=pause, resume=resume)
        self._working = working

    def _measured(self, machine: XenMachine, run: Run, number: int) -> tuple[RunMeasurement, tuple[StateOutcome, ...]]:
        campaign, placed = self._campaign, run.placed
        values, dropped = self._metrics(machine, run)
        with ExitStack() as opened:
            fillers, clients = self._at_work(machine, run, opened)
            started = datetime.now(UTC).isoformat(timespec="milliseconds")
            first = HostUsage.read(machine, clients, fillers)
            spells = self._spells(machine, (clients, fillers), f"{campaign.seed}:{number}:{run.run}", len(placed))
            last = HostUsage.read(machine, clients, fillers)
            progress = [self._ended(client, entry) for client, entry in zip(clients, placed, strict=True)]
        seconds = last.at_s - first.at_s
        steal, foreign = last.since(first)
        percent = {
            entry.instance: 100 * (last.clients[at] - first.clients[at]) / seconds for at, entry in enumerate(placed)
        }
        units = tuple(self._units[entry.member.workload] for entry in placed)
        windows = tuple(_window(spell, progress, self._guard_s, first.at_s) for spell in spells)
        on_off = OnOffRun(
            started, seconds, campaign.warmup_s, tuple(entry.instance for entry in placed), units, windows, percent,
            steal, foreign, {},
        )  # fmt: skip
        return replace(on_off_measurement(on_off), values=values, dropped=dropped), state_outcomes(on_off)

    def _at_work(
        self, machine: XenMachine, run: Run, opened: ExitStack
    ) -> tuple[Sequence[LabProcess], Sequence[LabProcess]]:
        """The programs that fill idle CPUs, and the clients, warmed up."""
        fillers = self._fill_idle(machine, opened)
        clients = [self._client(machine, guest, entry, opened) for guest, entry in self._pairs(run)]
        time.sleep(self._campaign.warmup_s)
        return fillers, clients

    def _pairs(self, run: Run) -> Iterator[tuple[ServingDomain, PlacedMember]]:
        return zip(self._guests, run.placed, strict=False)

    def _client(self, machine: XenMachine, guest: ServingDomain, entry: PlacedMember, opened: ExitStack) -> LabProcess:
        workload = self._campaign.workloads[entry.member.workload]
        command = [sys.executable, "-I", "-S", "-B"]
        if isinstance(workload, WebWorkload):
            path = f"/{workload.size_kb}k"
            command += [str(FILES / "fetch.py"), guest.address, str(WEB_PORT), path, str(workload.connections)]
        else:
            command += [str(FILES / "spin.py"), "drive", guest.address, str(SPIN_PORT)]
        client = LabProcess(command, groups=[], network=machine.network, directory=self._scratch)
        opened.callback(client.stop, 0)
        return client

    def _fill_idle(self, machine: XenMachine, opened: ExitStack) -> Sequence[LabProcess]:
        if not self._on_off.fill_idle:
            return ()
        filler = IdleFiller(self._registry, self._maker, self._scratch, machine.network)
        return opened.enter_context(filler).programs

    def _ended(self, client: LabProcess, entry: PlacedMember) -> ClientProgress:
        client.check()
        client.terminate()
        wait_until(lambda: client.returncode is not None, _END_S)
        try:
            report = json.loads(client.output())
        except ValueError:
            raise RunError(f"the client of {entry.instance} printed no report: {client.errors()}") from None
        return ClientProgress(report["bin_s"], {int(number): amount for number, amount in report["amounts"].items()})

    def _spells(
        self, machine: XenMachine, programs: tuple[Sequence[LabProcess], Sequence[LabProcess]], seed: str, members: int
    ) -> list[StateSpell]:
        """One after another; a spell lasts from the end of its switch to the begin of the next one."""
        blocks = blocks_for(self._campaign.seconds, self._dwell_s)
        spells: list[StateSpell] = []
        for block, state in draw_order(all_states(members), blocks, seed):
            self._switch(machine, frozenset(state))
            first = HostUsage.read(machine, *programs)
            time.sleep(max(0.0, first.at_s + self._dwell_s - time.monotonic()))
            spells.append(StateSpell(block, state, first, HostUsage.read(machine, *programs)))
        self._switch(machine, frozenset(range(members)))
        return spells

    @property
    def _dwell_s(self) -> float:
        return (self._on_off.dwell_ms or 0) / 1000

    @property
    def _guard_s(self) -> float:
        return (self._on_off.guard_ms or 0) / 1000

    def _metrics(self, machine: XenMachine, run: Run) -> tuple[tuple[MetricValue, ...], tuple[str, ...]]:
        """The eight metrics with every member at work, for clients of their own; they are fetched when those are gone.

        Beside them what was dropped, with its reason.
        """
        if self._snapshots is None:
            return (), ()
        tables = self._kernel_tables(machine, run, "_at_rest")
        self._snapshots.start()
        with ExitStack() as opened:
            self._at_work(machine, run, opened)
            all_parties = frozenset(range(len(run.placed)))
            for working in (frozenset[int](), all_parties):  # so the trace has a record also of a vCPU that always runs
                self._switch(machine, working)
            time.sleep(LAG_S)
            self._snapshots.take()
            time.sleep(self._shape.metrics_s)
            self._snapshots.take()
            tables += self._kernel_tables(machine, run, "")
        source = self._snapshots.finish()
        names = {guest.name: entry.instance for guest, entry in self._pairs(run)}
        backend = RenamingBackend(XenBackend(source, "emulated", "full"), names)
        first = backend.read_counters()
        source.advance()
        values, dropped = metric_values(collect(first, backend.read_counters()))
        return (*values, *tables), dropped

    def _kernel_tables(self, machine: XenMachine, run: Run, when: str) -> list[MetricValue]:
        """What each guest of the run holds now of its grant table, and its kernel in slab caches (finding N13)."""
        if not self._shape.kernel_tables:
            return []
        machine.dom0.run(["xl", "debug-keys", "g"]).checked()
        grants = parse_grant_tables(machine.dom0.run(["xl", "dmesg"]).checked().text, "xl dmesg")
        held: list[MetricValue] = []
        for guest, entry in self._pairs(run):
            table = grants[guest.domain]
            for metric, amount in (
                ("grant_entries", table.held),
                ("grant_entries_most", table.most_entries),
                ("slab_objects", guest.slab_objects()),
            ):
                held.append(
                    MetricValue(entry.instance, "instance", metric + when, amount, KERNEL_TABLES[metric + when])
                )
        return held


def _online(machine: XenMachine) -> int:
    return len(parse_cpus(str(machine.dom0.look("read", "/sys/devices/system/cpu/online")).strip()))


def _window(spell: StateSpell, progress: Sequence[ClientProgress], guard_s: float, origin_s: float) -> OnOffWindow:
    begin, end = spell.first.at_s + guard_s, spell.last.at_s
    steal, foreign = spell.last.since(spell.first)
    done = [client.between(begin, end) for client in progress]
    return OnOffWindow(
        spell.block, spell.state, end - origin_s, done[0][1], tuple(amount for amount, _ in done), (0,) * len(done),
        (0.0,) * len(done), steal > _MOST_STEAL or foreign > _MOST_FOREIGN,
    )  # fmt: skip
