"""`cotenant schema`: the JSON Schema of what a command prints with `--json`, made of the models that write it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from advisor.errors import InvalidInput
from api.cli.output import print_json, say

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def shapes() -> dict[str, Any]:
    """The types of what commands print with `--json`, by command; all are those of REST but for `doctor`."""
    from api.schemas import (  # with FastAPI, which most commands do without
        alarms,
        audit,
        effects,
        obtained,
        placements,
        plans,
        profiles,
        quality,
        registry,
        slowing,
        worth,
    )

    return {
        "where": placements.PlacementAnswer,
        "predict": effects.SceneAnswer,
        "plan": plans.PlanAnswer,
        "plans list": list[plans.PlanItem],
        "plans show": plans.PlanAnswer,
        "worth": worth.AdviceWorthOut,
        "profile": profiles.ProfileAnswer,
        "slowing": slowing.HostSlowing,
        "obtained": obtained.InstanceObtained,
        "doctor": alarms.DoctorOut,
        "audit": list[audit.AuditOut],
        "models list": list[registry.ModelOut],
        "models show": registry.ModelOut,
        "models activate": registry.ModelOut,
        "models rollback": registry.ModelOut,
        "models shadow": registry.ModelOut,
        "models history": list[registry.ActivationOut],
        "models quality": quality.QualityOut,
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
