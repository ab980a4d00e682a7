"""The questions about one instance or one host on files: where, predict; no server and no database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import Instance, Inventory, PlacementRequest, like_another, recommendation_as_json, time_part
from advisor.errors import InvalidInput
from api.cli.answers import cpu_share, model_line, ratio, remark, short, show_answer, times
from api.cli.options import AsJson, ModelDir, ObjectiveName, settings
from api.cli.output import print_json, print_table, say

InventoryFile = Annotated[Path, typer.Argument(metavar="INVENTORY.yaml", help="Hosts, instances and workloads.")]


def where(
    inventory: InventoryFile,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_NAME",
            help="YAML file with one instance, or the name of one in the inventory, which is then placed as if it "
            "had no host yet.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Place a new instance that is like this one of the inventory: of its size, unless --instance FILE "
            "says another, and with what is known of its demand.",
        ),
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="A,B", help="Rank only these hosts.", show_default="all hosts")
    ] = None,
    objective: ObjectiveName = "worst",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of hosts to show at most.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Give the reasons.")] = False,
    commands: Annotated[bool, typer.Option("--commands", help="Print the commands, with their undo.")] = False,
    as_json: AsJson = False,
    model: ModelDir = None,
) -> None:
    """Rank the hosts of an inventory for one instance.

    Hosts are ranked by what would happen to everybody there. No server and no database are needed.
    """
    cloud = offline.load_inventory(inventory)
    asked, now_on, others = _asked(cloud, instance, like)
    request = PlacementRequest(
        instance=asked,
        hosts=names_of("--hosts", hosts),
        objective=objective,
        limit=limit,
        explain=explain,
        commands=commands,
        dry_run=True,
    )
    answer = offline.where(others, request, model=model, settings=settings())
    if as_json:
        print_json(recommendation_as_json(answer))
    else:
        show_answer(answer, now_on, explain=explain, commands=commands)


def predict(
    scene: Annotated[Path, typer.Argument(metavar="SCENE.yaml", help="One host and the instances on it.")],
    as_json: AsJson = False,
    model: ModelDir = None,
) -> None:
    """Predict what co-located instances do to each other."""
    answer = offline.predict(offline.load_scene(scene), model=model, settings=settings())
    if as_json:
        from api.schemas.effects import SceneAnswer  # with FastAPI: `where` does without it

        print_json(SceneAnswer.of(answer).model_dump(mode="json", exclude_unset=True))
        return
    rows = [
        (
            effect.instance,
            ratio(effect),
            "overloaded" if effect.overloaded else times(effect.latency_ratio),
            "" if effect.overloaded else times(effect.jitter_ratio),
            cpu_share(effect),
            short(effect),
            remark(effect),
        )
        for effect in answer.effects
    ]
    header = (
        "instance",
        "throughput ratio (range)",
        "latency ratio",
        "jitter ratio",
        "CPU share",
        "short of CPU",
        "",
    )
    print_table(header, rows, right=(2, 3, 4, 5))
    if answer.crowded is not None:
        say(f"More vCPUs are ready to run than there are CPUs {time_part(answer.crowded)} of the time.")
    say(f"Combined score {answer.combined_score:.2f} of {len(answer.effects)}.")
    say(model_line(answer.model_version, answer.model_origin, degraded=answer.degraded))


def _asked(cloud: Inventory, instance: str | None, like: str | None) -> tuple[Instance, str | None, Inventory]:
    """The instance in question without a place, where it is now, and the cloud without it."""
    if instance is None and like is None:
        raise InvalidInput("name the instance with --instance, or one that it is like with --like", field="instance")
    if like is None:
        return _find(cloud, str(instance))
    other = next((one for one in cloud.instances if one.id == like), None)
    if other is None:
        raise InvalidInput(f"--like {like}: there is no instance of that name")
    if instance is None:
        return like_another(Instance("new-instance"), other, ()), None, cloud
    asked, now_on, others = _find(cloud, instance)
    if asked.workload is not None or asked.demand:
        raise InvalidInput(f"{instance} says what {asked.id} runs or wants; leave out --like", field="like")
    return like_another(asked, other, ("vcpus", "memory_mb")), now_on, others


def _find(cloud: Inventory, wanted: str) -> tuple[Instance, str | None, Inventory]:
    """The instance in question without a place, where it is now, and the cloud without it."""
    path = Path(wanted)
    if path.is_file() or path.suffix in {".yaml", ".yml", ".json"}:
        instances = offline.load_instances(path)
        if len(instances) != 1:
            raise InvalidInput(f"{path} holds {len(instances)} instances, one is needed; use plan for many")
        found = instances[0]
    else:
        named = [instance for instance in cloud.instances if instance.id == wanted]
        if not named:
            raise InvalidInput(f"--instance {wanted}: there is no such file, and no instance of that name")
        found = named[0]
    others = replace(cloud, instances=tuple(instance for instance in cloud.instances if instance.id != found.id))
    # A pinning speaks of the pCPUs of the host that it leaves; that of one without a host is part of the question.
    pinning = None if found.host else found.settings.pinning
    return replace(found, host=None, settings=replace(found.settings, pinning=pinning)), found.host, others


def names_of(option: str, given: str | None) -> tuple[str, ...] | None:
    """The names of a list such as a,b, None = it was not given; InvalidInput when it names nothing."""
    if given is None:
        return None
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise InvalidInput(f"{option} names no {'instance' if option == '--movable' else 'host'}; write {option} a,b")
    return names
