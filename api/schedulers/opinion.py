"""What every scheduler's question comes down to: an instance as it is described there, and an opinion on its hosts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.domain import Instance, PlacementRequest, Recommendation
from advisor.errors import InvalidInput, NotFound
from advisor.protocols import InventoryService, PlacementService
from api.schemas.base import as_input

# Hosts that are told apart; those behind them count as no better than the last. The work grows with it.
MOST_TOLD = 100
UNSURE = frozenset({"host.unknown", "host.no_data"})  # these say nothing about the host


@dataclass(frozen=True, slots=True)
class HostScores:
    """What is thought of the hosts that a scheduler named, which are in exactly one of these: `scores`, best first;
    `behind` those, in the order they were named; `refused` with a sentence each; `unknown`, as they were named."""

    scores: Mapping[str, float]
    behind: tuple[str, ...]
    refused: Mapping[str, str]
    unknown: tuple[str, ...]

    def points(self, most: int, held: str | None) -> dict[str, int]:
        """What each host that can take it is worth, 0 to `most`: all of it where nobody is harmed, half of it where the
        harm is as if one instance stood still. The one that is held is alone in having as much as it has, so that a
        scheduler which goes by points takes that one."""
        scaled = {name: round(most / (1 + max(1 - score, 0.0))) for name, score in self.scores.items()}
        scaled |= dict.fromkeys(self.behind, min(scaled.values(), default=0))
        if held is None:
            return scaled
        best = scaled[held]
        return {name: value if name == held else max(0, min(value, best - 1)) for name, value in scaled.items()}

    @classmethod
    def of(cls, answer: Recommendation, named: Sequence[str]) -> HostScores:
        scores = {candidate.host: candidate.score for candidate in answer.candidates}
        refused = {one.host: one.reason for one in answer.rejected if one.code not in UNSURE}
        unknown = {one.host for one in answer.rejected if one.code in UNSURE}
        left = [name for name in dict.fromkeys(named) if name not in scores and name not in refused]
        return cls(
            scores=scores,
            behind=tuple(name for name in left if name not in unknown),
            refused=refused,
            unknown=tuple(name for name in left if name in unknown),
        )


def ask(
    placements: PlacementService,
    instance: Instance,
    hosts: Sequence[str],
    *,
    most: int = MOST_TOLD,
    holds_next: bool = False,
) -> HostScores:
    """What is thought of these hosts; only the audit log keeps it (`holds_next`: see PlacementService)."""
    (answer,) = placements.in_turn([question(instance, hosts, most)], hold=False, holds_next=holds_next)
    return HostScores.of(answer, hosts)


def ask_and_hold(
    placements: PlacementService, instance: Instance, hosts: Sequence[str]
) -> tuple[HostScores, str | None]:
    """What is thought of these hosts, of which the best counts as taken until the inventory shows the instance.

    None = there is none. One entry in the audit log either way.
    """
    thought = ask(placements, instance, hosts, holds_next=True)
    if not thought.scores:
        return thought, None
    (answer,) = placements.in_turn([question(instance, tuple(thought.scores), 1)], hold=True)
    return thought, answer.candidates[0].host if answer.candidates else None


def question(instance: Instance, hosts: Sequence[str], most: int = 1) -> PlacementRequest:
    """A scheduler's question: no explanation, no commands, these hosts only."""
    return PlacementRequest(instance, hosts=tuple(dict.fromkeys(hosts)), limit=most, explain=False)


def known(inventory: InventoryService, name: str) -> Instance:
    """The instance as the inventory has it, or one of which nothing is known; InvalidInput when that is no name."""
    unknown = _named(name)  # first: no database has to look for what is no name
    try:
        return inventory.instance(name)
    except NotFound:
        return unknown


@as_input
def _named(name: str) -> Instance:
    return Instance(name)


def described(
    instance: Instance, told: Mapping[str, str], spelt: Callable[[str], str], **sizes: float | None
) -> Instance:
    """The instance with what the scheduler says of it, which wins over what the inventory says.

    `told` may hold, under the names that `spelt` makes of them, `workload`, `service`, `load`,
    `min_throughput_ratio`, `max_latency_ratio` and `max_time_short` as text; `sizes` are `vcpus`, `memory_mb` and
    `disk_gb`, None = not said. InvalidInput names the key that is wrong.
    """
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    for name, read in _READERS.items():
        key = spelt(name)
        if key not in told:
            continue
        try:
            given[name] = read(told[key])
            replace(instance, **{name: given[name]})  # the type's own rule, so that the sentence names this key
        except ValueError as error:
            raise InvalidInput(f"{key} {told[key][:60]!r}: {error}", field=key) from error
    pinning = instance.settings.pinning
    if pinning is not None and len(pinning.cpus) > given.get("vcpus", instance.vcpus):
        given["settings"] = replace(instance.settings, pinning=None)  # of a size that it no longer has
    return _changed(instance, given)


@as_input
def _changed(instance: Instance, given: Mapping[str, Any]) -> Instance:
    return replace(instance, **given)


def number(text: str) -> float:
    """A finite number as text; ValueError else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value


def whole(text: str) -> int:
    """A whole number as text; ValueError else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("is not a whole number")
    return int(text)


def _workload(text: str) -> str:
    if not text or len(text) > 255 or not text.isprintable():
        raise ValueError("is not 1-255 printable characters")
    return text


def _service(text: str) -> str:
    if text not in {"latency", "throughput"}:
        raise ValueError("is neither latency nor throughput")
    return text


_READERS: Mapping[str, Callable[[str], Any]] = {
    "workload": _workload,
    "service": _service,
    "load": number,
    "min_throughput_ratio": number,
    "max_latency_ratio": number,
    "max_time_short": number,
}
