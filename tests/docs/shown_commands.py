"""Which commands that documents show a test runs, and why it does not run the others."""

from __future__ import annotations

NOT_RUN = {
    "cotenant demo --live": "serves until it is stopped; tests/api runs it",
    "cotenant demo --replay": "serves until it is stopped; tests/api runs it",
    "cotenant-profiler run": "reads a host until it is stopped",
    "cotenant-profiler probe": "loads the machine, or needs another one; tests/probes runs each probe",
    "cotenant-lab run examples/campaigns/findings.yaml --rounds": "measures for half an hour, as root",
    "cotenant-lab run examples/campaigns/colocations.yaml     ": "measures for hours, as root",
    "cotenant-lab show lab-colocations": "needs what a campaign has measured",
    "cotenant train": "needs windows of agents, or a dataset of one's own",
    "cotenant models activate": "needs a model of one's own",
    "cotenant tune cloud.yaml": "needs a cloud of one's own",
    "cotenant where cloud.yaml": "shows a refusal",
    "cotenant slowing HOST": "needs a host of one's own",
    "cotenant obtained INSTANCE": "needs an instance of one's own",
    "cotenant maintenance": "needs a scheduler",
    "cotenant sync": "needs another system",
    "cotenant history": "needs another system",
    "cotenant replay": "needs a trace",
    "cotenant token accept": "needs a token's file",
    "cotenant token revoke": "needs a token's id",
    "cotenant report --out /srv": "needs a cloud in the database",
}
"""By how a command begins."""


def is_run(line: str) -> bool:
    """Whether the test of wheels runs this command in a folder with examples, datasets and an empty database."""
    return line == "cotenant-profiler probe list" or not any(line.startswith(start) for start in NOT_RUN)
