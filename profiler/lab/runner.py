"""Carries a campaign out: what is not yet in the journal, round by round, and leaves nothing behind however it ends."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TextIO

from profiler.lab.campaign import Campaign
from profiler.lab.circumstances import circumstances, read_machine
from profiler.lab.control_groups import GroupMaker
from profiler.lab.errors import LabError, RunError, StopRequested
from profiler.lab.instances import Setup, host_instances
from profiler.lab.journal import Journal, Record
from profiler.lab.measure import measure
from profiler.lab.preparation import check_ready
from profiler.lab.progress import CampaignProgress
from profiler.lab.registry import DEFAULT_STATE, Registry, clean
from profiler.lab.schedule import Run, calibration_key, calibrations, expand, in_round
from profiler.lab.tables import write_dataset

_TRIES = 2  # a run that fails once (a port still in use, a hiccup) gets a second chance; then the campaign stops
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Summary:
    """How a campaign ended."""

    directory: Path
    total: int
    finished: int
    measured_now: int
    rounds: int
    disturbed: int
    interrupted: bool


def run_campaign(
    campaign: Campaign, directory: Path, *, fresh: bool = False, again: bool = False, state: Path = DEFAULT_STATE,
    stream: TextIO, quiet: bool = False,
) -> Summary:  # fmt: skip
    """Measure everything that is not measured yet and write the dataset; LabError says why it cannot go on.

    `again` measures the runs once more that something from outside disturbed.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        check_ready(campaign, directory)
        for leftover in clean(state):
            if not quiet:
                print(f"removed what a dead lab run left behind: {leftover}", file=stream)
        journal = Journal(directory, campaign, fresh=fresh, again=again)
    except OSError as error:
        raise LabError(_disk_trouble(error, directory)) from None
    return _Campaigner(campaign, directory, journal, stream, quiet).carry_out(state)


class _Campaigner:
    def __init__(self, campaign: Campaign, directory: Path, journal: Journal, stream: TextIO, quiet: bool) -> None:
        self._campaign = campaign
        self._directory = directory.resolve()
        self._journal = journal
        self._machine = read_machine()
        self._found = circumstances()
        self._maker = GroupMaker()
        runs = expand(campaign)
        ordered = [(run, 0) for run in calibrations(runs)]
        ordered += [(run, n) for n in range(1, campaign.rounds + 1) for run in in_round(runs, campaign.seed, n)]
        done = journal.done()
        self._total = len(ordered)
        self._todo = [(run, number) for run, number in ordered if (run.run, number) not in done]
        run_s = campaign.seconds + campaign.warmup_s
        self._progress = CampaignProgress(len(ordered), len(ordered) - len(self._todo), run_s, stream, quiet=quiet)

    def carry_out(self, state: Path) -> Summary:
        interrupted = False
        before = len(self._journal.records)
        self._maker.prepare()
        with self._progress:
            try:
                with stoppable(), _registered(state, self._directory) as (registry, scratch):
                    self._rounds(registry, scratch)
            except StopRequested:
                interrupted = True
            except OSError as error:
                raise LabError(_disk_trouble(error, self._directory)) from None
            finally:
                self._write()
        records = [record for record in self._journal.records if record.kind != "calibration"]
        return Summary(
            self._directory, self._total, self._total - len(self._todo) + len(self._journal.records) - before,
            len(self._journal.records) - before, len({record.round for record in records}),
            sum(record.disturbed for record in records), interrupted,
        )  # fmt: skip

    def _rounds(self, registry: Registry, scratch: Path) -> None:
        current = 0
        for run, number in self._todo:
            if number != current:
                self._write()  # tables of all whole rounds so far
                current = number
            self._progress.begin(run.run, number)
            record = self._try(run, number, registry, scratch)
            self._journal.append(record)
            self._progress.step(run.run, number, record.took_s, _outcome_line(record))

    def _try(self, run: Run, number: int, registry: Registry, scratch: Path) -> Record:
        for attempt in range(1, _TRIES + 1):
            try:
                return self._measure(run, number, registry, scratch)
            except RunError as error:
                if attempt == _TRIES:
                    raise LabError(
                        f"{run.run} failed {_TRIES} times, the last time because {error}; finished runs are kept, the"
                        " same command goes on from here"
                    ) from None
                self._progress.say(f"{run.run} is tried again: {error}")
        raise AssertionError("unreachable")

    def _measure(self, run: Run, number: int, registry: Registry, scratch: Path) -> Record:
        campaign = self._campaign
        began = time.monotonic()
        workloads = tuple(campaign.workloads[entry.member.workload] for entry in run.placed)
        setup = Setup(registry, run.placed, workloads, scratch, campaign.link_mbit)
        rates = {} if run.kind == "calibration" else self._rates(run)
        with host_instances("container", setup, self._maker) as instances:
            measured = measure(instances, campaign.seconds, campaign.warmup_s, rates)
        units = {name: workload.unit for name, workload in campaign.workloads.items()}
        return Record.of(run, number, measured, rates, units, time.monotonic() - began)

    def _rates(self, run: Run) -> Mapping[str, float | None]:
        """Requested rate of members with a part load: that part of what the calibration reached."""
        rates: dict[str, float | None] = {}
        for entry in run.placed:
            if entry.member.load < 1.0:
                key = calibration_key(entry)
                reached = [r.members[0].outcomes["throughput"] for r in self._journal.records if r.run == key]
                rates[entry.instance] = entry.member.load * median(reached)
        return rates

    def _write(self) -> None:
        if any(record.kind != "calibration" for record in self._journal.records):
            try:
                found = dict(self._found)
                if self._journal.measured_again:
                    found["runs_measured_again"] = f"{self._journal.measured_again}, because they were disturbed"
                write_dataset(self._directory, self._campaign, self._journal.records, self._machine, found)
            except OSError as error:
                raise LabError(_disk_trouble(error, self._directory)) from None


@contextmanager
def _registered(state: Path, directory: Path) -> Iterator[tuple[Registry, Path]]:
    """A registry and a scratch directory; both, and everything registered, are gone afterwards."""
    registry = Registry(state)
    try:
        scratch = registry.directory(directory)
        registry.made("directory", str(scratch))
        scratch.mkdir()
        yield registry, scratch
    finally:
        with deaf():
            registry.close()


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal become StopRequested; the same signals during clean-up change nothing."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # started with nohup: it is to outlive its terminal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deaf() -> Iterator[None]:
    """Stopping signals are ignored inside."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _outcome_line(record: Record) -> str:
    parts = [f"{m.label} {m.outcomes['throughput']:.5g} {m.unit}" for m in record.members]
    return ", ".join(parts) + (" (disturbed)" if record.disturbed else "")


def _disk_trouble(error: OSError, directory: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left in {directory}: finished runs are kept, make room and give the same command again"
    return f"{directory} cannot be used ({error.strerror or error}): finished runs are kept"
