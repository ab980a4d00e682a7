"""The advisor as a policy: each arrival is a call of `recommend` with one host per situation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.domain import Inventory, Objective, PlacementRequest, Recommendation
from advisor.placement import screen
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor, PredictionCache, QuestionContext
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor
from profiler.observed import Instance, Pinning
from research.arena.contest import NOW
from research.arena.measured_clouds import Offer, SituationChoice
from research.arena.measured_hosts import MeasuredWorld, Situation


@dataclass(frozen=True, slots=True)
class _Said:
    """What the advisor said about a host in a situation: all that its order depends on, but for what it keeps for
    others, which depends on the whole cloud and is taken out of the score."""

    score: float
    lowest: float
    one_node: bool
    left: float
    expected: float
    half_width: float


@dataclass(frozen=True, slots=True)
class CotenantPolicy:
    """What the advisor says about a workload is asked once, about one host in each situation that there can be: hosts
    that are alike are alike, and before it looks ahead no host's score depends on which others are in question.

    Where `predictor` holds several by workload, a question about a new VM is answered by its own.

    What it keeps for others is computed by the advisor's own function from what it said about each workload. That it
    answers the same when it is asked about the whole cloud is tested.
    """

    world: MeasuredWorld
    predictor: Predictor | Mapping[str, Predictor]
    objective: Objective
    remembered: PredictionCache = field(default_factory=PredictionCache)
    _said: dict[str, Mapping[Situation, _Said]] = field(default_factory=dict)

    def choose(self, offer: Offer, workload: str, _random: np.random.Generator) -> SituationChoice:
        """The best one as the advisor orders them: by score, and equal scores by who is badly off and what is left."""
        situations = list(offer.first)
        answers = [self._about(workload)[one] for one in situations]
        score, lowest, fits, left = (
            np.array([getattr(one, name) for one in answers]) for name in ("score", "lowest", "one_node", "left")
        )
        names = np.array([offer.first[one] for one in situations])
        kept = self._kept_for_others(offer, situations)
        score = score - kept
        if self.objective == "pack":
            best = int(scoring.order(score, names)[0])
        else:
            groups = scoring.grouped(score, scoring.EQUAL), scoring.grouped(lowest, scoring.NOTICED)
            best = int(scoring.order(groups[0], names, groups[1], fits.astype(np.float64), left)[0])
        expected = np.array([one.expected for one in answers]) - kept
        tied = frozenset(
            situation
            for at, situation in enumerate(situations)
            if at != best
            and scoring.tied(float(expected[at] - expected[best]), answers[at].half_width, answers[best].half_width)
            and scoring.alike(answers[at].lowest, answers[best].lowest)
        )
        return SituationChoice(situations[best], tied)

    def _about(self, workload: str) -> Mapping[Situation, _Said]:
        if workload not in self._said:
            self._said[workload] = self._asked(workload)
        return self._said[workload]

    def _kept_for_others(self, offer: Offer, situations: Sequence[Situation]) -> np.ndarray:
        """As `look_ahead.reserved`, of hosts in these situations, in a cloud of this mix."""
        instances: Counter[str] = Counter()
        for situation, count in offer.count.items():
            for name in situation:
                instances[name] += count
        seats = self.world.seats
        taken = instances.total() / (seats * sum(offer.count.values()))
        parts = np.array([1 / (seats - len(one)) for one in situations])
        places = np.array([float(offer.count[one]) for one in situations])
        few = self.objective != "pack" and len(instances) > 1 and sum(places) > 1
        if not few or not screen.look_ahead_from(taken, np.repeat(parts, places.astype(int))):
            return np.zeros(len(situations))
        unmeasured = _Said(screen.REFUSED, 0.0, False, 0.0, 0.0, 0.0)  # where the two were never measured together
        names = sorted(instances, key=lambda one: (-instances[one], one))[: screen.MOST_CLASSES]
        scores = np.array([[self._about(name).get(one, unmeasured).score for name in names] for one in situations])
        number = np.array([float(instances[name]) for name in names])
        return screen.kept_for_others(np.maximum(scores, screen.REFUSED), places, number, taken, parts)

    def _asked(self, workload: str) -> Mapping[Situation, _Said]:
        world = self.world
        situations = [one for one in world.situations() if world.after(one, workload) is not None]
        answer = self.ask(situations, workload, limit=len(situations))
        by_host = {name_of(at): situation for at, situation in enumerate(situations)}
        answers = {
            by_host[candidate.host]: _Said(
                candidate.score + candidate.reserved,
                min(one.throughput_ratio.expected for one in (candidate.new_vm, *candidate.neighbours)),
                candidate.headroom.one_numa_node,
                candidate.headroom.scarcest[1],
                candidate.expected + candidate.reserved,
                candidate.half_width,
            )
            for candidate in answer.candidates
            if candidate.headroom
        }
        assert len(answers) == len(situations), answer.rejected
        return answers

    def ask(self, hosts: Sequence[Situation], workload: str, limit: int = 1) -> Recommendation:
        """The advisor's answer about a cloud of these hosts; those that cannot take the workload are not in question.

        Residents sit on the first seats and the new VM on the last one: seats differ in nothing but their CPU.
        """
        world = self.world
        host_names = [name_of(at) for at in range(len(hosts))]
        inventory = Inventory(
            tuple(map(world.host_named, host_names)),
            tuple(
                _instance(world, f"{name}-{seat}", workload_there, world.pins[seat], name)
                for name, situation in zip(host_names, hosts, strict=True)
                for seat, workload_there in enumerate(situation)
            ),
            world.profiles,
        )
        snapshot = ClusterSnapshot.build(inventory, seen=dict.fromkeys(host_names, NOW), pending=(), taken_at=NOW)
        request = PlacementRequest(
            _new_vm(world, workload),
            hosts=tuple(
                name for name, there in zip(host_names, hosts, strict=True) if world.after(there, workload) is not None
            ),
            objective=self.objective,
            limit=limit,
            explain=False,
            commands=False,
        )
        return recommend(snapshot, QuestionContext(self._active(workload), NOW, 1.0), request)

    def _active(self, workload: str) -> ActivePredictor:
        if isinstance(self.predictor, Mapping):  # another one for every new VM: nothing is remembered between them
            return ActivePredictor(self.predictor[workload])
        return ActivePredictor(self.predictor, remembered=self.remembered)


def name_of(number: int) -> str:
    """The id of a host, in the order of numbers."""
    return f"h{number:06}"


def _new_vm(world: MeasuredWorld, workload: str) -> Instance:
    """Who comes, on the CPUs that were measured: where no instance was pinned, on all of them, so that none are
    chosen."""
    one = _instance(world, "new", workload, world.pins[-1])
    everywhere = one.settings.pinning or Pinning.all_on(tuple(range(world.host.pcpus)), one.vcpus)
    return replace(one, settings=replace(one.settings, pinning=everywhere))


def _instance(world: MeasuredWorld, name: str, workload: str, pin: str, host: str | None = None) -> Instance:
    """An instance as it was measured, on the CPUs of a seat."""
    settings = replace(world.instances[workload].settings, pinning=Pinning.parse(pin))
    return world.seated(name, workload, host, settings)
