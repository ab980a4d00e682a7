"""Writes a measurement plan as a campaign file for the lab; pairs that the lab cannot run are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import yaml

from advisor.domain import ProbePair, ProbePlan
from advisor.errors import InvalidInput
from advisor.experiments.probe_planning import WARMUP_S
from advisor.files import write_whole
from profiler.files import MEGABYTE, load_yaml
from profiler.host_kinds import TRAITS
from profiler.observed import check_id

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
