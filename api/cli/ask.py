"""The questions about one instance or one host on files: where, predict; no server and no database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from advisor import offline
from advisor.domain import (
    Find,
    Instance,
    Inventory,
    PlacementRequest,
    Recommendation,
    Scene,
    SceneEffects,
    asked_about,
    changed,
    found_in,
    known_as,
    like_another,
    recommendation_from_json,
    scene_effects_from_json,
    score_figure,
    significant,
    time_part,
)
from advisor.errors import InvalidInput
from advisor.validation import the_one
from api.cli.answers import cpu_share, ratio, remark, short, show_answer, shown, times
from api.cli.asking import SERVER, Server, Service, TokenFile, asked_service
from api.cli.lazy import NO_HOST
from api.cli.options import (
    NOTHING,
    AsJson,
    InventoryUnlessServer,
    ModelDir,
    Options,
    ids_of,
    names_of,
    settings,
    with_options,
    written,
)
from api.cli.output import print_json, print_table, say
from api.rows import Alike, joined

OPTIONS = ("hosts", "objective", "limit", "explain", "commands", "tune")
STANDARD = {"explain": False, "tune": True}  # reasons fill a terminal: only where asked for
NEW = "new-instance"  # of which only a similar instance is named


@with_options
def where(
    inventory: InventoryUnlessServer = None,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_NAME",
            help="YAML file with one instance, or the name of one in the inventory, which is examined where "
            "it is, with better hosts or settings.",
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
    question: Annotated[Mapping[str, Any], Options(PlacementRequest, OPTIONS, standard=STANDARD)] = NOTHING,
    as_json: AsJson = False,
    model: ModelDir = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Rank the hosts of an inventory for one instance.

    Hosts are ranked by the effect on all instances there. With a file no server and no database are needed. The exit
    code is 3 where no host can take it.
    """
    service = asked_service(server, token_file, inventory, model=model)
    if instance is None and like is None:
        raise InvalidInput("name the instance with --instance, or one that it is like with --like", field="instance")
    given: Mapping[str, Any] = {}
    cloud = Inventory()
    if service is not None:
        asked, given = _asked_of(service, instance, like)
        like = None if like is None else service.id_of("instances", like)
        named = tuple(service.id_of("hosts", name) for name in names_of("--hosts", question["hosts"]) or ()) or None
    elif inventory is not None:
        asked, cloud = _asked(offline.load_inventory(inventory), instance, like)
        named = ids_of("--hosts", question["hosts"], cloud.hosts)
    request = PlacementRequest(asked, dry_run=True, **{**question, "hosts": named})
    answer = (
        offline.where(cloud, request, model=model, settings=settings())
        if service is None
        else _answer_of(service, request, given, like)
    )
    if as_json:
        print_json(answer)
    else:
        show_answer(answer, explain=request.explain, commands=request.commands)
    if not answer.candidates:
        raise typer.Exit(NO_HOST)


def predict(
    scene: Annotated[Path, typer.Argument(metavar="SCENE.yaml", help="One host and the instances on it.")],
    as_json: AsJson = False,
    model: ModelDir = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Predict what co-located instances do to each other."""
    service = asked_service(server, token_file, None if server or os.environ.get(SERVER) else scene, model=model)
    known = offline.load_scene(scene, found_in(()) if service is None else _known_to(service))
    answer = (
        offline.predict(known, model=model, settings=settings()) if service is None else _predicted_by(service, known)
    )
    if as_json:
        print_json(answer)
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
    header = ("instance", "throughput ratio (range)", "latency ratio", "jitter ratio", "CPU share", "contended", "")
    groups = joined(cast(list[tuple[str, ...]], rows), lambda row: row[1:])
    shown_rows = [(_with_others(group), *group.row[1:]) for group in groups]
    print_table(header, shown_rows, right=(2, 3, 4, 5))
    if len(groups) < len(rows):
        say("Instances with the same figures are one row; --json has each of them.")
    if answer.crowded is not None:
        crowded = time_part(significant(answer.crowded) or 0.0)
        say(f"More vCPUs are ready to run than there are CPUs {crowded} of the time.")
    say(f"Combined score {shown(answer.combined_score, 2, score_figure)} of {len(answer.effects)}.")
    say(offline.answered_by(answer.model_version, answer.model_origin, degraded=answer.degraded))


def _with_others(group: Alike[tuple[str, ...]]) -> str:
    name = group.row[0]
    return f"{name} and {len(group.others)} alike" if group.others else name


def _asked_of(service: Service, instance: str | None, like: str | None) -> tuple[Instance, Mapping[str, Any]]:
    """The instance in question as far as the question says it, and its fields; a service knows the rest."""
    if instance is None:
        return Instance(NEW), {}
    if is_file(instance):
        asked, given = offline.load_asked(Path(instance))
        _check_like(asked.id, given, like)
        return asked, given
    with service.read_as("instance"):
        return Instance(service.named("instances", instance)["id"]), {}


def _answer_of(
    service: Service, request: PlacementRequest, given: Mapping[str, Any], like: str | None
) -> Recommendation:
    """What a service answers, as if it had been decided here."""
    from api.schemas.inventory import InstanceItem

    item = InstanceItem.of(request.instance).model_dump(mode="json", exclude_none=True)
    sent = given.keys() - {"host", "settings"}
    new = {"id": request.instance.id, **{name: item[name] for name in sent if name in item}}
    for name in given.get("settings", {}):
        if name == "pinning":
            new["pinning"] = item.get("pinning")
        else:
            new.setdefault("isolation", {})[name] = item["isolation"].get(name)
    if like is not None:
        new["like"] = like
    body = {**written(request, apart=("instance", "constraints")), "instance": new}
    with service.read_as("recommendation"):
        return recommendation_from_json(service.post("placements", body=body), request)


def _known_to(service: Service) -> Find:
    """Look ids up at a service; NotFound where it has none such."""

    def find(name: str) -> Instance:
        from api.schemas.inventory import InstanceItem

        with service.read_as("instance"):
            return InstanceItem.model_validate(service.get("instances", name)).as_domain()

    return find


def _predicted_by(service: Service, scene: Scene) -> SceneEffects:
    """What a service predicts for a scene, as if it had been predicted here."""
    from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem

    body = {
        "host": HostItem.of(scene.host).model_dump(mode="json", exclude_none=True),
        "instances": [InstanceItem.of(there).model_dump(mode="json", exclude_none=True) for there in scene.instances],
        "workloads": [WorkloadItem.of(workload).model_dump(mode="json") for workload in scene.workloads],
    }
    with service.read_as("prediction"):
        return scene_effects_from_json(service.post("predictions", body=body))


def _asked(cloud: Inventory, instance: str | None, like: str | None) -> tuple[Instance, Inventory]:
    """The instance in question, and the cloud with it where it stands."""
    find = found_in(cloud.instances)
    name: str = NEW if instance is None else instance
    given: Mapping[str, Any] = {}
    if instance is not None and is_file(instance):
        described, given = offline.load_asked(Path(instance))
        _check_like(described.id, given, like)
        name = described.id
        if described.host is not None:  # the file says where it is, and how
            others = tuple(other for other in cloud.instances if other.id != name)
            size = None if like is None else 1
            there = changed(find(name), given) if name in _ids(cloud) else asked_about(name, given, find, vcpus=size)
            cloud = replace(cloud, instances=(*others, there))
            find, given = found_in(cloud.instances), {}
    elif instance is not None:
        name = instance_of(cloud, instance).id
    given = {field: value for field, value in given.items() if field != "id"}
    if like is None:
        return asked_about(name, given, find), cloud
    sized = ("vcpus", "memory_mb") if name in _ids(cloud) else given.keys() & {"vcpus", "memory_mb"}
    asked = asked_about(name, given, find, vcpus=1)
    return like_another(asked, instance_of(cloud, like, "--like"), sized), cloud


def _ids(cloud: Inventory) -> set[str]:
    return {instance.id for instance in cloud.instances}


def _check_like(name: str, given: Mapping[str, Any], like: str | None) -> None:
    if like is not None and (given.get("workload") is not None or given.get("demand")):
        raise InvalidInput(f"the file says what {name} runs or needs; leave out --like", field="like")


def is_file(wanted: str) -> bool:
    """Whether this names a file, not an instance of the inventory."""
    return Path(wanted).is_file() or Path(wanted).suffix in {".yaml", ".yml", ".json"}


def instance_of(cloud: Inventory, name: str, option: str = "--instance") -> Instance:
    """The instance of this id, else of this name; InvalidInput where there is none, or several have the name."""
    ids = known_as(cloud.instances, name)
    if not ids:
        no_file = "there is no such file, and no" if option == "--instance" else "there is no"
        raise InvalidInput(f"{option} {name}: {no_file} instance of that name", field=option.strip("-"))
    known = the_one(ids, "instance", name, option.strip("-"))
    return next(instance for instance in cloud.instances if instance.id == known)
