"""`cotenant schema`: the JSON Schema of what a command prints with `--json`, made of the types that write it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from advisor.errors import InvalidInput
from api.cli.output import print_json, say

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def shapes() -> dict[str, Any]:
    """The types of what commands print with `--json`, by command."""
    from advisor.domain import (  # all of this is slow to load
        Activation,
        AdviceWorth,
        AuditEntry,
        Checkup,
        HostSlowing,
        InstanceObtained,
        QualityReport,
        Recommendation,
        Replay,
        SceneEffects,
    )
    from api.schemas import changes, commands, placements, quality

    return {
        "demo": commands.DemoOut,
        "where": Recommendation,
        "predict": SceneEffects,
        "plan": placements.PlanAnswer,
        "tune": placements.PlanAnswer,
        "report": commands.ReportOut,
        "snapshot": commands.SnapshotOut,
        "worth": AdviceWorth,
        "probe-plan": commands.ProbePlanAnswer,
        "replay": Replay,
        "profile": commands.ProfileOut,
        "score": quality.ScoresOut | quality.HostScoresOut | quality.VmScoresOut,
        "slowing": HostSlowing,
        "obtained": InstanceObtained,
        "train": commands.TrainingOut,
        "evaluate": commands.EvaluationOut | commands.EvaluationsOut,
        "sync": commands.SyncOut | commands.LoadedOut,
        "migrate": commands.MigrationOut,
        "apply": changes.RolloutOut | changes.PreviewOut,
        "changes list": list[changes.RolloutOut],
        "changes show": changes.RolloutOut,
        "changes approve": changes.RolloutOut,
        "maintenance": changes.MaintenanceOut | list[changes.MaintenanceOut],
        "freeze": changes.FreezeOut,
        "history": commands.HistoryOut,
        "doctor": Checkup,
        "audit": list[AuditEntry],
        "plans list": list[placements.PlanItem],
        "plans show": placements.PlanAnswer,
        "models list": list[quality.ModelOut],
        "models show": quality.ModelOut,
        "models gate": quality.ModelOut,
        "models activate": quality.ModelOut,
        "models rollback": quality.ModelOut,
        "models shadow": quality.ModelOut,
        "models history": list[Activation],
        "models quality": QualityReport,
        "db upgrade": commands.RevisionOut,
        "db prune": commands.PruneOut,
        "db backup": commands.BackupOut,
        "db restore": commands.BackupOut,
        "token create": commands.TokenMade,
        "token list": list[commands.TokenOut],
        "token revoke": commands.TokenOut,
    }


def schema(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="Such as where, or plans list.", show_default="list")
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json.

    Without a command it lists those that have one.
    """
    from pydantic import TypeAdapter

    known = shapes()
    if not command:
        for name in known:
            say(name)
        return
    name = " ".join(command)
    if name not in known:
        raise InvalidInput(f"there is no schema of {name}; there are {', '.join(known)}", field="command")
    print_json({"$schema": DIALECT, **TypeAdapter(known[name]).json_schema(mode="serialization")})
