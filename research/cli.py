"""`cotenant-research`: what papers found beside measurements and predictions, and Cotenant beside baselines."""

from __future__ import annotations

from api.cli import Cotenant, program_of, run_program
from api.cli.lazy import Listed


class Research(Cotenant):
    """The commands; what the advisor refuses is one sentence."""

    program = "cotenant-research"
    listed = (
        Listed(
            "bench",
            "research.bench.command:bench",
            "Cotenant beside baselines: prediction, placement, planning and speed in one table.",
        ),
        Listed("findings", "research.findings.command:findings", "The papers' findings: paper, measured, predicted."),
    )


app = program_of(
    Research,
    "What papers found beside measurements and predictions, and Cotenant beside baselines.\n\n"
    "Settings come from COTENANT_* variables; options win. Exit codes: 0 done, 1 failed, 2 wrong usage or input.",
)


def main() -> None:
    """Entry point."""
    run_program(app, Research.program)
