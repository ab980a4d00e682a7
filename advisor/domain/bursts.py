"""Several instances placed in one question: what the answers do together, and how they were found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from advisor.domain.figures import decimals

BatchOrder = Literal["given", "joint"]  # as a question asks for it
BurstTrial = Literal["given", "largest_first", "planned_worst", "planned_total", "planned_pack"]
BurstSearchEnd = Literal["search", "time"]


@dataclass(frozen=True, slots=True)
class BurstFigures:
    """What the answers to a burst do together, once all of it is there; lower is better, but for `placed`.

    `not_kept` counts instances on hosts that take newcomers whose T/B falls below their limit, or below 0.9 where they
    have none. `hosts_used` is of the whole cloud. `harm` is what the objective (for `pack`: `worst`) counts against the
    whole burst at once; of one instance it is 1 - the score of its host.
    """

    placed: int
    not_kept: int
    hosts_used: int
    harm: float


@dataclass(frozen=True, slots=True)
class JointSearch:
    """Which trial was kept, which were made, and how the kept one compares with the order given.

    `ended` is `time` where the time limit kept trials from being made or finished.
    """

    chosen: BurstTrial
    tried: tuple[BurstTrial, ...]
    ended: BurstSearchEnd
    found: BurstFigures
    given: BurstFigures


def joint_search_as_json(search: JointSearch) -> dict[str, Any]:
    """The search as REST tells it."""
    document = asdict(search)
    for figures in (document["found"], document["given"]):
        figures["harm"] = decimals(figures["harm"], 4)
    return document | {"tried": list(search.tried)}
