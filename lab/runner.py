"""Runs a campaign round by round, without the runs that are in the journal, and cleans up however it ends."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from lab.campaign import Campaign
from lab.control_groups import GroupMaker
from lab.dataset_writer import write_dataset
from lab.dry_run import mean_run_s
from lab.emulated_xen.pair_runs import EmulatedXenRuns
from lab.environment import circumstances, read_machine, remembered
from lab.errors import LabError, RepeatedError, StopRequested
from lab.journal import Journal
from lab.preflight import check_ready, needed_mb, needed_tools
from lab.program_versions import versions
from lab.progress import CampaignProgress
from lab.qdiscs import host_qdiscs
from lab.records import Record
from lab.resource_registry import DEFAULT_STATE, ResourceRegistry, clean
from lab.rounds import Round, RoundPlan
from lab.schedule import Run
from lab.signals import deaf, stoppable
from lab.single_run import HostRuns, RunMaker, utc_now
from lab.time_grid import TimeGrid
from lab.volume import mounted_volume

Ending = Literal["finished", "interrupted", "out of time"]
# When so many runs fail one after another, something is missing that all of them need.
_MOST_FAILED = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """How a campaign ended.

    `wide` is how many groups' intervals of T/B are still wider than asked for, None = no width was asked for;
    `skipped` are rounds of a time grid that would have been late. `failed` runs were left out of their round; the same
    campaign started again tries them again.
    """

    directory: Path
    total: int
    finished: int
    measured_now: int
    rounds: int
    disturbed: int
    unsteady: int
    wide: int | None
    skipped: tuple[int, ...]
    failed: tuple[str, ...]
    ending: Ending

    @property
    def interrupted(self) -> bool:
        return self.ending == "interrupted"


def run_campaign(
    campaign: Campaign, directory: Path, *, fresh: bool = False, again: bool = False, state: Path = DEFAULT_STATE,
    stream: TextIO, quiet: bool = False,
) -> Summary:  # fmt: skip
    """Measure all runs that are not in the journal and write the dataset; LabError says why it had to stop.

    `again` also measures those runs once more that something from outside disturbed.
    """
    try:
        with _new(directory):
            check_ready(campaign, directory)
        for leftover in clean(state):
            if not quiet:
                print(f"removed what a dead lab run left behind: {leftover}", file=stream)
        journal = Journal(directory, campaign, fresh=fresh, again=again)
    except OSError as error:
        raise LabError(_disk_trouble(error, directory)) from None
    return _Campaigner(campaign, directory, journal, stream, quiet).carry_out(state)


@dataclass(slots=True)
class _Counts:
    """How far the campaign is; `total` grows with every further round."""

    total: int
    measured: int = 0
    skipped: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    in_a_row: int = 0


class _Campaigner:
    def __init__(self, campaign: Campaign, directory: Path, journal: Journal, stream: TextIO, quiet: bool) -> None:
        self._campaign = campaign
        self._directory = directory.resolve()
        self._journal = journal
        self._machine = read_machine(campaign)
        self._maker = GroupMaker()
        self._plan = RoundPlan(campaign)
        self._counts = _Counts(self._plan.least_total)
        self._done = journal.done()
        least = sum(number <= self._plan.least_rounds for _, number in self._done)
        run_s = mean_run_s(campaign, self._plan.runs, journal.records)
        self._progress = CampaignProgress(self._counts.total, least, run_s, stream, quiet=quiet)
        self._grid = None if campaign.temporal is None else TimeGrid(campaign.temporal, journal, self._progress.say)

    def carry_out(self, state: Path) -> Summary:
        ending: Ending = "finished"
        self._maker.prepare()
        with self._progress:
            try:
                with stoppable():
                    with _registered(self._campaign, self._maker, state, self._directory) as (registry, scratch):
                        ending = self._rounds(self._run_maker(registry, scratch))
                    if self._counts.measured:
                        self._remember("after")  # when nothing of the lab's own is left
                        self._compare_host()
            except StopRequested:
                ending = "interrupted"
            except OSError as error:
                raise LabError(_disk_trouble(error, self._directory)) from None
            finally:
                self._write()
        return self._summary(ending)

    def _run_maker(self, registry: ResourceRegistry, scratch: Path) -> RunMaker:
        kind: type[RunMaker] = HostRuns if self._campaign.emulated is None else EmulatedXenRuns
        return kind(self._campaign, self._journal, registry, scratch, self._maker, self._progress.say)

    def _rounds(self, maker: RunMaker) -> Ending:
        for step in self._plan.steps(self._journal.records):
            todo = [run for run in step.runs if (run.run, step.number) not in self._done]
            self._announce(step, len(todo))
            if todo and self._is_time_for(step, todo) and not self._round(step.number, todo, maker):
                return "out of time"
        return "finished"

    def _round(self, number: int, todo: Sequence[Run], maker: RunMaker) -> bool:
        """Measure what is left of a round; False when the campaign's minutes are over."""
        self._write()  # tables of all complete rounds so far
        started = self._round_started(number)
        for run in todo:
            if self._is_over_time():
                return False
            if not self._counts.measured:
                self._remember("before")
            self._progress.begin(run.run, number)
            try:
                record = maker.make(run, number, started)
            except RepeatedError as error:
                self._leave_out(run, number, error)
                continue
            self._journal.append(record)
            self._counts.in_a_row = 0
            self._counts.measured += 1
            self._progress.step(run.run, number, record.took_s, _outcome_line(record))
        return True

    def _leave_out(self, run: Run, number: int, error: RepeatedError) -> None:
        """Go on without a run that failed; LabError where that happens again and again."""
        counts = self._counts
        counts.failed.append(f"{run.run}, round {number}")
        counts.in_a_row += 1
        if number == 0 or counts.in_a_row >= _MOST_FAILED or len(counts.failed) > counts.measured:
            raise LabError(f"{error}; finished runs are kept, the same command goes on from here")
        self._journal.note("failed", {"at": utc_now(), "run": run.run, "round": number, "because": str(error)})
        self._progress.say(f"round {number} goes on without a run: {error}")

    def _is_time_for(self, step: Round, todo: Sequence[Run]) -> bool:
        """Wait for a round's time; False, and counted, when the round would be late."""
        if self._grid is None:
            return True
        self._progress.ends_at(self._grid.end)
        if self._grid.wait(step, resumed=len(todo) < len(step.runs)):
            return True
        self._counts.skipped.append(step.number)
        self._counts.total -= len(todo)
        self._progress.expect(-len(todo))
        return False

    def _announce(self, step: Round, todo: int) -> None:
        if step.wide is None:
            return
        self._counts.total += len(step.runs)
        why = f" in this round, {step.wide} of {self._groups} groups are not sure enough yet"
        self._progress.expect(len(step.runs), len(step.runs) - todo, why)

    @property
    def _groups(self) -> int:
        return sum(run.kind == "group" for run in self._plan.runs)

    def _round_started(self, number: int) -> str:
        known = [record.around.round_started for record in self._journal.records if record.round == number]
        return min(known, default=utc_now())

    def _is_over_time(self) -> bool:
        minutes = self._campaign.repeats.minutes
        return minutes is not None and sum(record.took_s for record in self._journal.records) >= minutes * 60

    def _remember(self, when: str) -> None:
        """Note the circumstances, the host's qdiscs among them; the lab has none of its own at these times."""
        facts: dict[str, Any] = {**circumstances(), "host_qdiscs": host_qdiscs()}
        if when == "before":
            facts["tools"] = versions(needed_tools(self._campaign))
        self._journal.note(when, {"at": utc_now(), **facts})

    def _compare_host(self) -> None:
        qdiscs = remembered(self._journal)["host_qdiscs_after"]
        if qdiscs != "the same":
            self._progress.say(f"the host's own qdiscs against those before the campaign: {qdiscs}")

    def _summary(self, ending: Ending) -> Summary:
        records = [record for record in self._journal.records if record.kind != "calibration"]
        counts = self._counts
        wide = None if self._campaign.repeats.narrow is None else len(self._plan.wide(records))
        return Summary(
            self._directory, counts.total, len(self._done) + counts.measured, counts.measured,
            len({record.round for record in records}), sum(record.disturbed for record in records),
            sum(bool(record.unsteady) for record in records), wide, tuple(counts.skipped), tuple(counts.failed),
            ending,
        )  # fmt: skip

    def _write(self) -> None:
        if any(record.kind != "calibration" for record in self._journal.records):
            try:
                write_dataset(
                    self._directory, self._campaign, self._journal.records, self._machine, remembered(self._journal)
                )
            except OSError as error:
                raise LabError(_disk_trouble(error, self._directory)) from None


@contextmanager
def _new(directory: Path) -> Iterator[None]:
    """Make a directory; a new one is removed again when a LabError follows."""
    existed = directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except LabError:
        if not existed:
            directory.rmdir()
        raise


@contextmanager
def _registered(
    campaign: Campaign, maker: GroupMaker, state: Path, directory: Path
) -> Iterator[tuple[ResourceRegistry, Path]]:
    """A registry and a scratch directory; both, and everything registered, are gone afterwards."""
    registry = ResourceRegistry(state)
    try:
        scratch = registry.directory(directory)
        registry.made("directory", str(scratch))
        scratch.mkdir()
        if campaign.volume is None:
            yield registry, scratch
        else:
            with mounted_volume(registry, maker, scratch, campaign.volume, needed_mb(campaign)) as folder:
                yield registry, folder
    finally:
        with deaf():
            registry.close()


def _outcome_line(record: Record) -> str:
    parts = [f"{m.label} {m.outcomes['throughput']:.5g} {m.unit}" for m in record.members]
    marks = [word for word, held in (("disturbed", record.disturbed), ("unsteady", bool(record.unsteady))) if held]
    return ", ".join(parts) + (f" ({', '.join(marks)})" if marks else "")


def _disk_trouble(error: OSError, directory: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left in {directory}: finished runs are kept, make room and give the same command again"
    return f"{directory} cannot be used ({error.strerror or error}): finished runs are kept"
