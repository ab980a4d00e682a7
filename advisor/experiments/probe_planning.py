"""Chooses the workload pairs worth measuring, by simulated decisions, and writes them as a campaign of the lab."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from advisor.deadline import Progress
from advisor.domain import (
    PROBE_PINNINGS,
    Instance,
    PlacementRequest,
    ProbeDecision,
    ProbePair,
    ProbePlan,
    ProbeRequest,
    ProbeStep,
    ProbeTurn,
)
from advisor.errors import InvalidInput
from advisor.experiments.decisions import Decision, DecisionScenes, SharedErrors, decision, lay_out
from advisor.placement import requests
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor, Notes
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from advisor.validation import write_whole
from models import probe_plan
from models.data.scene import stack
from models.prediction import BandArrays, Predictor
from profiler.files import MEGABYTE, load_yaml
from profiler.host_kinds import TRAITS
from profiler.observed import check_id

WARMUP_S = 5.0  # before the measured time of a run
AROUND_S = 1.5  # set-up and clean-up of a run, as the lab reckons before it has timed any
MAX_SCENES = 10_000  # scenes of one matrix; beyond it only the most uncertain instances are decided
MAX_DECISIONS = 10  # that are simulated: those where most is at stake
MAX_DAYS = 30.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration_s(text: str) -> float:
    """Seconds of a duration such as 90s, 45m or 2h; InvalidInput for anything else."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= MAX_DAYS * _UNITS["d"]:
        message = f"budget {text[:40]!r} is not a duration of up to {MAX_DAYS:g} days; write 90s, 45m or 2h"
        raise InvalidInput(message, field="budget")
    return seconds


def check(request: ProbeRequest) -> None:
    """Reject values that the types allow but that make no sense; InvalidInput names the field."""
    if not 0 < request.budget_s <= MAX_DAYS * _UNITS["d"]:
        raise InvalidInput(f"budget_s {request.budget_s} is not within 0 and {MAX_DAYS:g} days", field="budget_s")
    for name, value, most in (("seconds_per_run", request.seconds_per_run, 86_400), ("rounds", request.rounds, 10_000)):
        if not 1 <= value <= most:
            raise InvalidInput(f"{name} {value} is not within 1 and {most}", field=name)
    wrong = [name for name in request.pinnings if name not in PROBE_PINNINGS]
    if wrong or not request.pinnings:
        message = f"pinning {wrong[0] if wrong else ''!r} is none of {', '.join(PROBE_PINNINGS)}"
        raise InvalidInput(message, field="pinnings")
    if request.seed < 0:
        raise InvalidInput(f"seed {request.seed} is below 0", field="seed")
    for instance in request.instances or ():
        requests.check_request(PlacementRequest(instance, objective=request.objective))


def plan(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    request: ProbeRequest,
    *,
    fresh_s: float,
    progress: Progress | None = None,
) -> ProbePlan:
    """The pairs to measure next on this cloud within a time budget, for a validated request.

    Every decision places one instance while the others stay. The same request on the same snapshot has the same answer.
    """
    return active.ask(chosen, lambda answering: _plan(snapshot, answering, request, fresh_s, progress))


def sentence(plan: ProbePlan) -> str:
    """The plan in one sentence."""
    before, after = (sum(getattr(entry, f"regret_{when}") for entry in plan.decisions) for when in ("before", "after"))
    if not plan.decisions:
        return "Nothing is worth measuring: no instance has two places to choose from."
    if plan.steps:
        return (
            f"{len(plan.steps)} pairs in {plan.seconds / 60:.0f} of {plan.request.budget_s / 60:.0f} minutes lower the "
            f"expected regret of {len(plan.decisions)} decisions from {before:.3f} to {after:.3f}; "
            f"{_ENDS[plan.ended]}."
        )
    if plan.ended == "settled":
        share = f"{probe_plan.SETTLED:.0%}".replace("%", " %")
        return f"Nothing is worth measuring: full knowledge would change no top choice in {share} of the draws."
    if plan.ended == "budget":
        return "No pair that is worth measuring fits the budget; give it more time, fewer rounds or shorter runs."
    return f"Nothing is worth measuring: no pair surely gains {probe_plan.LEAST_GAIN:g} of an instance's speed."


_ENDS = {
    "settled": "no top choice is in doubt after that",
    "budget": "what else is worth measuring does not fit the budget",
    "no gain": "what is left in doubt, no pair surely betters",
}


def _plan(
    snapshot: ClusterSnapshot,
    answering: ActivePredictor,
    request: ProbeRequest,
    fresh_s: float,
    progress: Progress | None,
) -> ProbePlan:
    predictor = answering.predictor
    instances, notes = _requested(snapshot, predictor, request)
    scenes = _asked(snapshot, request, instances, fresh_s)
    errors = SharedErrors(request.pinnings)
    decisions = _decisions(snapshot, predictor, scenes, errors)
    decisions, stakes = _at_stake(decisions, errors)
    run_s = request.seconds_per_run + WARMUP_S + AROUND_S
    pairs = errors.pairs
    simulated = probe_plan.plan(
        decisions,
        errors.pair_of,
        lambda picked, pair: request.rounds * run_s * _runs([pairs[at] for at in picked], pairs[pair]),
        request.budget_s,
        seed=request.seed,
        progress=progress,
    )
    return ProbePlan(
        request=request,
        model_version=predictor.version,
        model_origin=predictor.origin,
        degraded=answering.degraded,
        run_s=run_s,
        steps=_steps(simulated, decisions, errors),
        decisions=tuple(
            ProbeDecision(
                candidate.instance, candidate.hosts[int(simulated.doubt.choice[at])], *_doubt(simulated.doubt, at)
            )
            for at, candidate in enumerate(decisions)
        ),
        ended=simulated.ended,
        notes=(*answering.notes, *notes, *stakes, *_unnamed(snapshot, scenes)),
    )


def _doubt(doubt: probe_plan.DecisionDoubt, at: int) -> list[float]:
    parts = (doubt.probability_before, doubt.probability_after, doubt.regret_before, doubt.regret_after)
    return [float(part[at]) for part in parts]


def _requested(snapshot: ClusterSnapshot, predictor: Predictor, request: ProbeRequest) -> tuple[list[Instance], Notes]:
    """The instances to decide about, without their hosts, and notes about those left out."""
    instances = [instance for residents in snapshot.residents for instance in residents]
    if request.instances is not None:
        instances = [snapshot.with_class(instance) for instance in request.instances]
    max_count = max(1, MAX_SCENES // (4 * max(len(snapshot.hosts), 1)))  # as it is, and under three pinnings at most
    if len(instances) <= max_count:
        return [_as_new(instance) for instance in instances], ()
    widths = _widths(snapshot, predictor)
    instances.sort(key=lambda instance: (-widths.get(instance.id, np.inf), instance.id))
    note = f"Of {len(instances)} instances, the {max_count} with the widest predicted intervals were examined."
    return [_as_new(instance) for instance in instances[:max_count]], (note,)


def _as_new(instance: Instance) -> Instance:
    """The instance without its host and pinning."""
    settings = replace(instance.settings, pinning=None) if instance.host else instance.settings
    return replace(instance, host=None, settings=settings)


def _widths(snapshot: ClusterSnapshot, predictor: Predictor) -> dict[str, float]:
    """The width of each instance's interval where it runs now."""
    band = predictor.predict(snapshot.scenes).throughput
    return {
        resident.id: float(band.upper[host, slot] - band.lower[host, slot])
        for host, residents in enumerate(snapshot.residents)
        for slot, resident in enumerate(residents)
    }


def _asked(
    snapshot: ClusterSnapshot, request: ProbeRequest, instances: Sequence[Instance], fresh_s: float
) -> list[DecisionScenes]:
    """The decisions between at least two hosts."""
    decisions = []
    for instance in sorted(instances, key=lambda instance: instance.id):
        placing = PlacementRequest(instance, objective=request.objective)
        hosts, _ = filters.apply(snapshot, placing, fresh_s=fresh_s)
        if len(hosts) > 1:
            decisions.append(lay_out(snapshot, placing, hosts))
    return decisions


def _decisions(
    snapshot: ClusterSnapshot, predictor: Predictor, scenes: Sequence[DecisionScenes], errors: SharedErrors
) -> list[Decision]:
    """Predict all decisions in one matrix and split it."""
    if not scenes:
        return []
    band = predictor.predict(stack([decision_scenes.scenes for decision_scenes in scenes])).throughput
    ends = np.cumsum([0, *(len(decision_scenes.scenes) for decision_scenes in scenes)])
    return [
        decision(
            snapshot,
            decision_scenes,
            BandArrays(*(part[a:b] for part in (band.expected, band.lower, band.upper))),
            errors,
        )
        for decision_scenes, a, b in zip(scenes, ends[:-1], ends[1:], strict=True)
    ]


def _at_stake(decisions: Sequence[Decision], errors: SharedErrors) -> tuple[list[Decision], Notes]:
    """With too many decisions, those whose choice is worst in expectation."""
    if len(decisions) <= MAX_DECISIONS:
        return list(decisions), ()
    doubt = probe_plan.plan(decisions, errors.pair_of, lambda *_: 1.0, 0.0).doubt
    worst = sorted(range(len(decisions)), key=lambda at: (-doubt.regret_before[at], at))[:MAX_DECISIONS]
    note = f"Of {len(decisions)} decisions the {MAX_DECISIONS} with the most at stake were looked at."
    return [decisions[at] for at in sorted(worst)], (note,)


def _runs(picked: Sequence[ProbePair], pair: ProbePair) -> int:
    """The runs that a pair adds to a round: itself, and base cases that no earlier pair needs."""
    have = {case for earlier in picked for case in _base_cases(earlier)}
    return 1 + len(_base_cases(pair) - have)


def _base_cases(pair: ProbePair) -> set[tuple[str, ...]]:
    """The base cases of a pair: T/B compares values of one round on the same CPUs.

    Each place of a form needs one, and so does the profile of every workload, alone on the first CPU.
    """
    places = {"same": ("0", "0"), "different": ("0", "1"), "shared": ("0-1", "0-1")}[pair.pinning]
    host = (pair.kind, pair.platform)
    own = {(*host, pair.pinning, cpus, name) for cpus, name in zip(places, (pair.first, pair.second), strict=True)}
    return own | {(*host, "same", "0", name) for name in (pair.first, pair.second)}


def _steps(
    simulated: probe_plan.MeasurementPlan, decisions: Sequence[Decision], errors: SharedErrors
) -> tuple[ProbeStep, ...]:
    steps, spent = [], 0.0
    for step in simulated.steps:
        spent += step.seconds
        turns = [(decisions[turn.question], turn) for turn in step.turns]
        steps.append(
            ProbeStep(
                pair=errors.pairs[step.pair],
                hosts=errors.hosts(step.pair),
                turns=tuple(
                    ProbeTurn(
                        changed.instance,
                        changed.hosts[turn.before],
                        changed.hosts[turn.after],
                        turn.probability,
                        turn.gain,
                    )
                    for changed, turn in turns
                ),
                probability=step.probability,
                gain=step.gain,
                seconds=step.seconds,
                cumulative_s=spent,
            )
        )
    return tuple(steps)


def _unnamed(snapshot: ClusterSnapshot, decisions: Sequence[DecisionScenes]) -> Notes:
    """A note that workloads without a name cannot be measured."""
    all_instances = [
        *(instance for residents in snapshot.residents for instance in residents),
        *(scenes.request.instance for scenes in decisions),
    ]
    unnamed = sorted({instance.id for instance in all_instances if not instance.workload})
    if not unnamed:
        return ()
    what = f"{unnamed[0]} names no workload" if len(unnamed) == 1 else f"{len(unnamed)} instances name no workload"
    return (f"{what}: an experiment can only measure workloads that it can start.",)


# Writes a measurement plan as a campaign file for the lab; pairs that the lab cannot run are listed.

# Server and load generators as in examples/campaigns: for two CPUs, of which the pair uses what the form says.
PINNINGS: Mapping[str, Mapping[str, Any]] = {
    "same": {"cpus": ["0"], "clients": ["1"]},
    "different": {"cpus": ["0", "1"], "clients": "own"},
    "shared": {"cpus": ["0-1"], "clients": ["0-1"]},
}
PLUGINS = "cotenant.campaigns"  # the group of entry points
Definitions = Mapping[str, Mapping[str, Any]]


class CampaignFormat(Protocol):
    """What runs campaigns, an entry point of PLUGINS."""

    def runnable_kinds(self) -> Sequence[str]:
        """The kinds of workloads that need no parameters."""

    def check(self, path: Path) -> None:
        """ValueError, in one sentence, where a file is no campaign."""


def definitions(file: Path | None) -> Definitions:
    """How workloads are run, by name: from a campaign file, else each lab workload by its own name.

    InvalidInput when the lab does not accept the campaign file, or is not installed.
    """
    if file is not None:
        _read(file)
        return dict(load_yaml(file, MEGABYTE)["workloads"])
    return {kind: {"kind": kind} for kind in _format().runnable_kinds()}


def write_campaign(plan: ProbePlan, path: Path, runnable: Definitions) -> tuple[str, ...]:
    """Write the plan's pairs as CAMPAIGN.yaml; returns the reason for each omitted pair.

    A campaign runs on one host: the kind and platform of the first runnable pair. No file is written without one.
    InvalidInput when the path cannot be written.
    """
    left_out: list[str] = []
    pairs: list[ProbePair] = []
    for pair in (step.pair for step in plan.steps):
        reason = _reason(pair, pairs, runnable)
        if reason:
            left_out.append(f"{pair.first} + {pair.second} ({pair.pinning}): {reason}")
        else:
            pairs.append(pair)
    if pairs:
        _write(path, _document(plan, pairs, runnable, path.stem))
    return tuple(left_out)


def _reason(pair: ProbePair, pairs: Sequence[ProbePair], runnable: Definitions) -> str | None:
    """Why a pair cannot be in the campaign."""
    for name in (pair.first, pair.second):
        if name not in runnable:
            return f"how to run {name} is not known; define it in the file that --workload-file names"
    if pairs and (pair.kind, pair.platform) != (pairs[0].kind, pairs[0].platform):
        return f"it is for {pair.kind} hosts of platform {pair.platform or 'without a name'}, a campaign is for one"
    return None


def _document(plan: ProbePlan, pairs: Sequence[ProbePair], runnable: Definitions, stem: str) -> dict[str, Any]:
    names = {name for pair in pairs for name in (pair.first, pair.second)}
    forms = dict.fromkeys(("same", *(pair.pinning for pair in pairs)))  # the first one holds the solo profiles
    return {
        "name": _identifier(stem, "probe-plan"),
        "platform": _identifier(pairs[0].platform, "probed-host"),
        "instances": TRAITS[pairs[0].kind].lab_instances,
        "seconds": plan.request.seconds_per_run,
        "warmup_s": WARMUP_S,
        "rounds": plan.request.rounds,
        "seed": plan.request.seed,
        "notes": f"Pairs that would change a decision, by model {plan.model_version}.",
        "workloads": {name: dict(runnable[name]) for name in sorted(names)},
        "pinnings": {form: dict(PINNINGS[form]) for form in forms},
        "pairs": "none",
        "groups": [{"members": [pair.first, pair.second], "pinnings": [pair.pinning]} for pair in pairs],
    }


def _identifier(text: str, otherwise: str) -> str:
    try:
        return check_id(text)
    except ValueError:
        return otherwise


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Write the whole file, and only if the lab accepts it."""
    comment = f"# Measured next, because it could change a decision:  cotenant-lab run {path.name}"
    text = "".join(filter(str.isprintable, comment)) + "\n"
    text += yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    write_whole(path, text.encode(), "campaign", check=_read)


def _read(file: Path) -> None:
    try:
        _format().check(file)
    except ValueError as error:
        raise InvalidInput(f"{error}; a campaign file that the lab accepts is needed", field="workloads") from error


def _format() -> CampaignFormat:
    for plugin in entry_points(group=PLUGINS):
        found: CampaignFormat = plugin.load()
        return found
    raise InvalidInput("a campaign needs the lab: pip install cotenant-lab", field="campaign")
