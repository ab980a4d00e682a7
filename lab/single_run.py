"""Measures one run of a campaign, twice if the first try fails: builds its instances and makes its record."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import ClassVar

from lab.campaign import Campaign
from lab.control_groups import GroupMaker
from lab.environment import MADE
from lab.errors import RepeatedError, RunError
from lab.instances import RunSetup, host_instances
from lab.journal import Journal
from lab.measure import Timing, measure
from lab.network import Wiring
from lab.on_off.making import is_on_off, make_on_off
from lab.qdiscs import Qdiscs, lab_qdiscs
from lab.records import Record, RunConditions, StateOutcome
from lab.resource_registry import ResourceRegistry
from lab.schedule import Run, calibration_key
from lab.volume import daemon_group

_TRIES = 2  # a run that fails once (a port still in use, a hiccup) gets a second chance; then it is left out


class RunMaker(ABC):
    """Measures the runs of a campaign, one at a time; `say` reports failures that are retried."""

    failures: ClassVar[tuple[type[Exception], ...]] = (RunError,)
    """After which a run is tried again."""

    def __init__(
        self, campaign: Campaign, journal: Journal, registry: ResourceRegistry, scratch: Path, maker: GroupMaker,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._campaign = campaign
        self._journal = journal
        self._registry = registry
        self._scratch = scratch
        self._maker = maker
        self._say = say

    def make(self, run: Run, number: int, round_started: str) -> Record:
        """Measure a run of a round; RepeatedError when it fails twice."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._make(run, number, round_started)
            except self.failures as error:
                self._clear()
                if attempt == _TRIES:
                    raise RepeatedError(f"{run.run} failed {_TRIES} times, the last time because {error}") from None
                self._say(f"{run.run} is tried again: {error}")
        raise AssertionError("unreachable")

    @abstractmethod
    def _make(self, run: Run, number: int, round_started: str) -> Record:
        """Measure a run once."""

    def _clear(self) -> None:
        """Remove what a failed try left and the next one must not find."""
        return


class HostRuns(RunMaker):
    """Runs of instances on this host."""

    def _make(self, run: Run, number: int, round_started: str) -> Record:
        campaign = self._campaign
        began = time.monotonic()
        load = round(os.getloadavg()[0], 2)
        rates = self._rates(run)
        with host_instances(campaign.instances, self._setup(run), self._maker) as instances:
            if made := instances.circumstances():
                self._journal.note(MADE, made)
            before = lab_qdiscs(self._registry)
            units: Mapping[str, str] = {name: workload.unit for name, workload in campaign.workloads.items()}
            states: tuple[StateOutcome, ...] = ()
            if is_on_off(campaign, run):
                on_off = make_on_off(campaign, run, number, self._journal.records, instances, rates)
                measured, units, states = on_off.measured, on_off.units, on_off.states
            else:
                timing = Timing(campaign.seconds, campaign.warmup_s, campaign.warmup_most_s)
                measured = measure(instances, timing, rates)
            around = self._around(round_started, load, before, lab_qdiscs(self._registry))
        return Record.of(run, number, measured, rates, units, time.monotonic() - began, around, states)

    def _setup(self, run: Run) -> RunSetup:
        campaign = self._campaign
        workloads = tuple(campaign.workloads[entry.member.workload] for entry in run.placed)
        wiring = Wiring(
            campaign.link_mbit, campaign.line_mbit, campaign.queue_packets, run.placed[0].driver,
            routers=campaign.routers,
        )  # fmt: skip
        fill_idle = campaign.on_off is not None and campaign.on_off.fill_idle
        return RunSetup(
            self._registry, run.placed, workloads, self._scratch, wiring, guests=campaign.guests, fill_idle=fill_idle,
            host_cap_percent=campaign.host_cap_percent,
            host_groups=() if campaign.volume is None else (daemon_group(self._registry),),
        )  # fmt: skip

    def _around(self, round_started: str, load: float, before: Qdiscs | None, after: Qdiscs | None) -> RunConditions:
        if after is None:
            return RunConditions(round_started, load)
        self._journal.note("qdisc", {"digest": after.digest, "text": after.text})
        dropped = None if before is None else max(0, after.dropped - before.dropped)
        return RunConditions(round_started, load, after.digest, dropped)

    def _rates(self, run: Run) -> Mapping[str, float | None]:
        """Requested rate of members with a part load: that part of what the calibration reached."""
        rates: dict[str, float | None] = {}
        for entry in run.placed:
            if entry.member.load < 1.0:
                key = calibration_key(entry)
                calibrations = [record.members[0] for record in self._journal.records if record.run == key]
                reached = [member.outcomes["throughput"] for member in calibrations]
                rates[entry.instance] = entry.member.load * median(reached)
        return rates


def utc_now() -> str:
    """Now, as journals and tables have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
