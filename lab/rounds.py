"""The rounds of a campaign: a minimum, then further rounds for groups with wide intervals; or those of a time grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.campaign import Campaign
from lab.precision import Precision
from lab.records import Record
from lab.schedule import Run, calibrations, expand, in_round, tunings


@dataclass(frozen=True, slots=True)
class Round:
    """A round: its runs in their order; round 0 calibrates.

    A further round is needed because of `wide` groups; None = it is one of the least rounds. `due_s` is when the round
    starts, in seconds after the grid's origin; None = now.
    """

    number: int
    runs: tuple[Run, ...]
    wide: int | None = None
    due_s: float | None = None


class RoundPlan:
    """All rounds of a campaign. What a further round contains depends only on the results of the rounds before it.

    So the same journal always gives the same rounds, also after an interruption within a round.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.runs = expand(campaign)
        self.calibrations = (*calibrations(self.runs), *tunings(campaign, self.runs))
        self._precision = Precision()

    @property
    def least_rounds(self) -> int:
        """Rounds that are measured whatever their results are."""
        temporal = self._campaign.temporal
        return self._campaign.repeats.least if temporal is None else temporal.slots

    @property
    def least_total(self) -> int:
        """Runs of these rounds, with calibrations."""
        return len(self.calibrations) + self.least_rounds * len(self.runs)

    def steps(self, records: Sequence[Record]) -> Iterator[Round]:
        """The rounds in their order. `records` is read anew for each, so it may grow meanwhile."""
        campaign, repeats = self._campaign, self._campaign.repeats
        yield Round(0, self.calibrations)
        for number in range(1, self.least_rounds + 1):
            due_s = None if campaign.temporal is None else (number - 1) * campaign.temporal.every_min * 60
            yield Round(number, tuple(in_round(self.runs, campaign.seed, number)), None, due_s)
        if repeats.narrow is None or campaign.temporal is not None:
            return
        for number in range(repeats.least + 1, repeats.most + 1):
            wide = self.wide(records, number)
            if not wide:
                return
            runs = self._with_solos(wide)
            yield Round(number, tuple(in_round(runs, campaign.seed, number)), len(wide))

    def wide(self, records: Sequence[Record], before: int | None = None) -> frozenset[str]:
        """Groups whose interval of T/B is too wide, by the rounds before this one; none where no width is asked for."""
        narrow = self._campaign.repeats.narrow
        if narrow is None:
            return frozenset()
        widths = self._precision.widths(record for record in records if before is None or record.round < before)
        names = {run.run for run in self.runs}  # a journal may hold runs that the campaign no longer has
        return frozenset(run for run, width in widths.items() if width > narrow and run in names)

    def _with_solos(self, groups: frozenset[str]) -> tuple[Run, ...]:
        chosen = [run for run in self.runs if run.run in groups]
        solos = {entry.solo_key for run in chosen for entry in run.placed}
        return (*chosen, *(run for run in self.runs if run.run in solos))
