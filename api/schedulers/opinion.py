"""What every scheduler's question comes down to: an instance as it is described there, and an opinion on its hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.domain import HostRanking, Instance, PlacementRequest
from advisor.domain.said import SAID
from advisor.errors import InvalidInput, NotFound
from advisor.service import InventoryService, PlacementService
from api.schemas.base import as_input

# Hosts that are told apart; those behind them count half as much as the last. The work grows with it.
MOST_TOLD = 100
UNSURE = frozenset({"host.unknown", "host.no_data"})  # these say nothing about the host
# Whoever else leaves the host, these stay.
LASTING = frozenset({"host.disabled", "constraint.kind", "constraint.label", "constraint.exclude", "capacity.pinning"})


@dataclass(frozen=True, slots=True)
class HostScores:
    """What is thought of the hosts that a scheduler named, which are in exactly one of these: `scores`, best first;
    `behind` those, in the order they were named; `refused` with a sentence each; `unknown`, as they were named.

    `lasting` are those of `refused` that nobody's leaving would help; `silent` are those of `unknown` that the
    inventory has, though nothing fresh is known of them. `per_host` = they depend on no other host that was named."""

    scores: Mapping[str, float]
    behind: tuple[str, ...]
    refused: Mapping[str, str]
    unknown: tuple[str, ...]
    lasting: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    per_host: bool = True

    def points(self, most: int, held: str | None) -> dict[str, int]:
        """What each host that can take it is worth, 0 to `most`: all of it where nobody is harmed, half of it where the
        harm is as if one instance stood still. The one that is held is alone in having as much as it has, so that a
        scheduler which goes by points takes that one."""
        scaled = {name: round(most / (1 + max(1 - score, 0.0))) for name, score in self.scores.items()}
        # Among those behind are the worst, too: a scheduler that looks at some hosts only must take none as the best.
        scaled |= dict.fromkeys(self.behind, min(scaled.values(), default=0) // 2)
        if held is None:
            return scaled
        best = scaled[held]
        return {name: value if name == held else max(0, min(value, best - 1)) for name, value in scaled.items()}

    @classmethod
    def of(cls, ranking: HostRanking, named: Sequence[str]) -> HostScores:
        scores, answer = ranking.scores, ranking.answer
        refused = {one.host: one.reason for one in answer.rejected if one.code not in UNSURE}
        unknown = {one.host for one in answer.rejected if one.code in UNSURE}
        left = [name for name in dict.fromkeys(named) if name not in scores and name not in refused]
        return cls(
            scores=scores,
            behind=tuple(name for name in left if name not in unknown),
            refused=refused,
            unknown=tuple(name for name in left if name in unknown),
            lasting=frozenset(one.host for one in answer.rejected if one.code in LASTING),
            silent=frozenset(one.host for one in answer.rejected if one.code == "host.no_data"),
            per_host=ranking.per_host,
        )


def ask(
    placements: PlacementService,
    instance: Instance,
    hosts: Sequence[str],
    *,
    most: int = MOST_TOLD,
    holds_next: bool = False,
    without: Collection[str] = (),
) -> HostScores:
    """What is thought of these hosts; only the audit log keeps it (`holds_next`, `without`: see PlacementService)."""
    asked_question = question(instance, hosts, most)
    return HostScores.of(placements.scores(asked_question, hold=False, holds_next=holds_next, without=without), hosts)


def ask_and_hold(
    placements: PlacementService, instance: Instance, hosts: Sequence[str]
) -> tuple[HostScores, str | None]:
    """What is thought of these hosts, of which the best counts as taken until the inventory shows the instance.

    None = there is none. One entry in the audit log either way.
    """
    ranking = placements.scores(question(instance, hosts, MOST_TOLD), hold=True)
    return HostScores.of(ranking, hosts), next(iter(ranking.scores), None)


def hold(placements: PlacementService, instance: Instance, thought: HostScores) -> str | None:
    """Hold the best of the hosts that can take it, None = there is none any more. One entry in the audit log."""
    (answer,) = placements.in_turn([question(instance, tuple(thought.scores), 1)], hold=True)
    return answer.candidates[0].host if answer.candidates else None


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
    fields: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    for name, read in SAID.items():
        key = spelt(name)
        if key not in told:
            continue
        try:
            fields[name] = read(told[key])
            replace(instance, **{name: fields[name]})  # the type's own rule, so that the sentence names this key
        except ValueError as error:
            raise InvalidInput(f"{key} {told[key][:60]!r}: {error}", field=key) from error
    return changed(instance, fields)


@as_input
def changed(instance: Instance, given: Mapping[str, Any]) -> Instance:
    """The instance with these fields; a pinning of a size that it no longer has is left out, and what was measured of
    its demand stays within the vCPUs that it has now."""
    vcpus, pinning, fields = int(given.get("vcpus", instance.vcpus)), instance.settings.pinning, dict(given)
    if pinning is not None and len(pinning.cpus) > vcpus:
        fields["settings"] = replace(instance.settings, pinning=None)
    if vcpus < instance.vcpus:
        measured = {name: one.within(vcpus) for name, one in instance.demand.items() if one.origin == "measured"}
        fields["demand"] = {**instance.demand, **measured}
    return replace(instance, **fields)
