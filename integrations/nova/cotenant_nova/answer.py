"""Cotenant's answer, checked strictly, as values for Nova: a weight for each host, and the hosts that it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Nova takes the heaviest host. Cotenant holds its first candidate for the server, so this one must win over others with
# the same score, also with Nova's weighers (2 to 3 in all) added: 0.01 times the default multiplier of 1000 is 10.
LEAD = 0.01
NEUTRAL = 0.5  # of unknown hosts beside known ones: neither best nor worst
FAR = 1e9  # above every real score
UNKNOWN = ("host.unknown", "host.no_data")
# Nova itself checks capacity and whether services are up, and its view is the newer one.
HARD = ("limit.settings", "constraint.exclusive")


@dataclass(frozen=True)
class Answer:
    """Scores of the candidates, best first, and the codes of the hosts that cannot take the server."""

    scores: Mapping[str, float]
    refused: Mapping[str, str]

    @classmethod
    def of(cls, document: Any) -> Answer:
        """From the JSON of `POST /v1/placements`; ValueError when it is anything else."""
        scores: dict[str, float] = {}
        refused: dict[str, str] = {}
        for row in _listed(document, "rejected", "host", "code"):
            if not isinstance(row["host"], str) or not isinstance(row["code"], str):
                raise ValueError("a rejection of the answer has no host or no code")  # noqa: TRY004 - it is data
            refused[row["host"]] = row["code"]
        for row in _listed(document, "candidates", "host", "score"):
            scores[row["host"]] = _score(row)
        return cls(scores, refused)

    @property
    def first(self) -> str | None:
        """The host that is held for the server, None = none."""
        return next(iter(self.scores), None)

    def weights(self, hosts: Sequence[str]) -> list[float]:
        """A value from 0 to 1 for each host: its score, or 0 where it cannot take the server.

        The first candidate is LEAD above all others. A host that is neither a candidate nor refused ranks behind the
        candidates; an unknown host is NEUTRAL. Where all hosts are unknown all are 0, which leaves the choice to Nova's
        own weighers whatever the multipliers.
        """
        if not self.scores and all(self.refused.get(host, UNKNOWN[0]) in UNKNOWN for host in hosts):
            return [0.0] * len(hosts)
        clamped = {host: min(max(score, 0.0), 1.0) for host, score in self.scores.items()}
        best = max(clamped[self.first] if self.first else 0.0, LEAD)
        most = best - LEAD if self.scores else 1.0
        rest = max(min(clamped.values(), default=0.0) - LEAD, 0.0)

        def value(host: str) -> float:
            if host == self.first:
                return best
            code = self.refused.get(host)
            plain = NEUTRAL if code in UNKNOWN else clamped.get(host, rest if code is None else 0.0)
            return min(plain, most)

        return [value(host) for host in hosts]

    def passes(self, hosts: Sequence[str]) -> list[str]:
        """The hosts where no limit would break."""
        return [host for host in hosts if self.refused.get(host) not in HARD]


def _score(candidate: Mapping[str, Any]) -> float:
    host, score = candidate["host"], candidate["score"]
    if not isinstance(host, str) or isinstance(score, bool) or not isinstance(score, (int, float)):
        raise ValueError("a candidate of the answer has no host or no score")  # noqa: TRY004 - it is data
    if not -FAR < score < FAR:  # nor infinite, nor NaN
        raise ValueError("the answer has a score that is not a finite number")
    return float(score)


def _listed(document: Any, name: str, *fields: str) -> list[Mapping[str, Any]]:
    items = document.get(name) if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ValueError(f"the answer has no list {name}")  # noqa: TRY004 - it is data
    if not all(isinstance(item, dict) and all(field in item for field in fields) for item in items):
        raise ValueError(f"the answer's {name} have no {' and '.join(fields)}")
    return items
