"""Estimates what a campaign measures and how long it takes, for `cotenant-lab run --dry-run`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lab.campaign import Campaign
from lab.on_off.making import is_on_off
from lab.on_off.states import all_states
from lab.preflight import missing_tools
from lab.progress import OVERHEAD_S, in_words
from lab.records import Record
from lab.rounds import RoundPlan
from lab.schedule import Run


@dataclass(frozen=True, slots=True)
class DryRunEstimate:
    """Counts of runs and minutes. `most_minutes` counts further rounds as if all of them measured everything.

    `run_s` is the mean time of a round's runs, from finished ones where there are any. The `finished` runs are not
    measured again.
    """

    campaign: str
    groups: dict[str, int]
    sizes: dict[int, int]
    solos: int
    calibrations: int
    rounds: int
    most_rounds: int
    runs: int
    finished: int
    run_s: float
    minutes: float
    most_minutes: float
    round_minutes: float
    every_min: float | None
    missing_tools: tuple[str, ...]

    def sentences(self) -> list[str]:
        """The estimate for people, one fact a line."""
        forms = ", ".join(f"{count} {name}" for name, count in self.groups.items())
        sizes = ", ".join(f"{count} of {size}" for size, count in self.sizes.items())
        who = f"{sum(self.groups.values())} groups ({sizes} members; by pinning: {forms})" if forms else "no groups"
        lines = [
            f"campaign {self.campaign}: {who}",
            f"each round: {sum(self.groups.values()) + self.solos} runs, {self.solos} of them solo,"
            f" {self.round_minutes:.1f} min at {self.run_s:.1f} s a run",
            f"{self.rounds} rounds and {self.calibrations} calibrations: {self.runs} runs, {self.finished} of them"
            f" finished; {in_words(self.minutes * 60)} to go",
        ]
        if self.most_rounds > self.rounds:
            most = in_words(self.most_minutes * 60)
            lines.append(f"up to {self.most_rounds} rounds of what is not sure enough: at most {most}")
        if self.every_min is not None:
            fits = "fits" if self.round_minutes <= self.every_min else "does not fit, so every next round is skipped"
            lines.append(f"a round every {self.every_min:g} min: it {fits}")
        if self.missing_tools:
            lines.append(f"not installed here: {', '.join(self.missing_tools)}")
        return lines


def estimate_campaign(campaign: Campaign, records: list[Record]) -> DryRunEstimate:
    """Estimate what remains beyond the finished runs in `records`; needs no root and changes nothing."""
    plan = RoundPlan(campaign)
    groups = [run for run in plan.runs if run.kind == "group"]
    done = sum(record.round <= plan.least_rounds for record in records)
    run_s = mean_run_s(campaign, plan.runs, records)
    repeats, temporal = campaign.repeats, campaign.temporal
    further = 0 if temporal else max(0, repeats.most - plan.least_rounds) * len(plan.runs)
    minutes = max(0, plan.least_total - done) * run_s / 60
    most = minutes + max(0, further - (len(records) - done)) * run_s / 60
    if repeats.minutes is not None:
        left = max(0.0, repeats.minutes - sum(record.took_s for record in records) / 60)
        minutes, most = min(minutes, left), min(most, left)
    return DryRunEstimate(
        campaign.name,
        dict(Counter(run.pinning for run in groups)),
        dict(sorted(Counter(len(run.placed) for run in groups).items())),
        len(plan.runs) - len(groups),
        len(plan.calibrations),
        plan.least_rounds,
        plan.least_rounds if temporal else repeats.most,
        plan.least_total,
        done,
        run_s,
        temporal.hours * 60 if temporal else minutes,
        temporal.hours * 60 if temporal else most,
        len(plan.runs) * run_s / 60,
        temporal.every_min if temporal else None,
        tuple(missing_tools(campaign)),
    )


def mean_run_s(campaign: Campaign, runs: Sequence[Run], records: Sequence[Record]) -> float:
    """Mean time that these runs take, in seconds.

    A run that stands in `records` takes as long as it took there. The others take as much longer than guessed as those.
    """
    took_s: dict[str, list[float]] = defaultdict(list)
    for record in records:
        took_s[record.run].append(record.took_s)
    guesses = {run.run: _guess_s(campaign, run) for run in runs}
    known = {name: median(took_s[name]) for name in guesses if name in took_s}
    slower = sum(known.values()) / sum(guesses[name] for name in known) if known else 1.0
    return fmean(known.get(name, slower * guess) for name, guess in guesses.items())


def _guess_s(campaign: Campaign, run: Run) -> float:
    """How long a run takes; one on/off goes through all states."""
    states = len(all_states(len(run.placed))) if is_on_off(campaign, run) else 1
    return states * campaign.seconds + campaign.warmup_s + OVERHEAD_S
