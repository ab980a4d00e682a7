"""Which findings fixed the prior's constants, and what the prior says of each when they are fitted without it.

A prediction of a finding that a constant came from proves nothing. It is labelled `fitted`; what is really predicted is
shown by fitting the constants on all co-locations that the papers print but those of that finding, and of others that
tell of the same runs. A constant that nothing else decides keeps the value that one would assume without any paper.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from unittest.mock import patch

import numpy as np

from advisor.domain import Host, Instance
from models.arrays import Floats
from models.data.dataset import Dataset
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.examples import measured, scene_of
from models.physics.demands import Demands, demands
from models.physics.prior import solve
from profiler.host_kinds import TRAITS

# What each finding fixed. N2's and N10's figures went in as they are printed: they predict nothing of their own.
FIXED_BY: Mapping[str, str] = {
    "N2": "what who never blocks keeps asking for",
    "N3": "what who never blocks keeps asking for",
    "N4": "is one of N3's pairs",
    "N5": "what who never blocks keeps asking for; fewer events where CPUs are crowded",
    "N6": "what who never blocks keeps asking for",
    "N7": "is one of N3's pairs",
    "N9": "CPUs that one bridge keeps busy",
    "N10": "events grow with CPUs",
    "N11": "events' share of a page's cost; CPUs that one bridge keeps busy",
    "N15": "restates N3 and N11",
    "L4": "what a weight is worth",
}
# Findings that tell of the same runs: who is left out leaves these out, too.
SAME_RUNS: Mapping[str, Sequence[str]] = {
    "N3": ("N4", "N5", "N6", "N7"), "N4": ("N7",), "N7": ("N4",), "N15": ("N4", "N5", "N6", "N7", "N11"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PriorConstants:
    """The constants of the prior for Xen that findings fixed; `keen` is a factor on the share that models.physics takes
    from a profile's blocked time, 0 = who is held back elsewhere asks for that much less CPU."""

    weight_exponent: float
    keen: float
    event_share: float
    driver_servers: float

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The prior with these constants. They are no arguments of it, because no other caller needs others."""

        def demanded(scenes: SceneBatch) -> Demands:
            own = demands(scenes)
            return replace(own, keen=self.keen * own.keen)

        xen = replace(TRAITS["xen"], weight_exponent=self.weight_exponent, driver_servers=self.driver_servers)
        with (
            patch("models.physics.demands.TRAITS", {**TRAITS, "xen": xen}),
            patch("models.physics.demands.EVENT_SHARE", self.event_share),
            patch("models.physics.prior.demands", demanded),
        ):
            yield


# From what one would assume without any paper (a weight is a share, all instances are alike) to what the papers
# suggest. A coarse grid: 69 outcomes that hold for a few machines decide no finer one.
CHOICES = [
    PriorConstants(*values) for values in product((1.0, 0.5, 0.124), (0.0, 1.0), (0.0, 0.2, 0.4), (math.inf, 1.0))
]


@dataclass(frozen=True, slots=True)
class ConstantFits:
    """The error of every choice of constants on every printed outcome of a co-location; (choices, outcomes)."""

    findings: Sequence[str]
    errors: Floats

    @classmethod
    def of(cls, papers: Dataset, table: ProfileTable) -> ConstantFits:
        scenes: list[tuple[Host, Sequence[Instance]]] = []
        findings, at, ratios = [], [], []
        for colocation in papers.colocations:
            if colocation.finding is None:
                continue
            host, instances = scene_of(colocation, dict(papers.platforms))
            found = measured(colocation, "throughput")
            for place, instance in enumerate(instances):
                if instance.id in found:
                    findings.append(colocation.finding)
                    at.append((len(scenes), place))
                    ratios.append(found[instance.id])
            scenes.append((host, instances))
        batch = build_batch(scenes, table)
        rows, places = np.array(at).T
        errors = np.stack([np.abs(_solved(choice, batch)[rows, places] - np.array(ratios)) for choice in CHOICES])
        return cls(findings, errors)

    def without(self, finding: str) -> PriorConstants:
        """The constants with the least mean error on all other findings; of equals the one nearest to no paper."""
        left_out: Collection[str] = {finding, *SAME_RUNS.get(finding, ())}
        kept = np.array([one not in left_out for one in self.findings])
        return CHOICES[int(np.round(self.errors[:, kept].mean(axis=1), 6).argmin())]


def _solved(constants: PriorConstants, batch: SceneBatch) -> Floats:
    with constants.applied():
        return solve(batch).throughput


def basis_of(finding: str, situation: str) -> str:
    """`predicted`, or `fitted` and what the finding, or the profile that it needs, gave to the prior."""
    if finding in FIXED_BY:
        return f"fitted: {FIXED_BY[finding]}"
    return "fitted: profile of the 1 MB server" if "1m" in situation else "predicted"
