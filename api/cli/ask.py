"""How answers look as text: the ranked table, commands with their undo, and the sentences of their document."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from advisor import offline
from advisor.domain import (
    AS_IS,
    Band,
    Candidate,
    Effect,
    Instance,
    Inventory,
    PlacementRequest,
    Recommendation,
    known_as,
    score_figure,
    settings_in_words,
    significant,
    time_part,
)
from advisor.errors import InvalidInput
from advisor.validation import the_one
from api.cli.asking import SERVER, Server, Service, TokenFile, asked_service
from api.cli.files import FileCloud, asked_questions
from api.cli.lazy import NO_HOST
from api.cli.options import (
    NOTHING,
    AsJson,
    InventoryUnlessServer,
    ModelDir,
    Options,
    names_of,
    with_options,
    written,
)
from api.cli.output import print_json, print_table, say
from api.rows import Alike, joined

HEADERS = ("rank", "host", "score", "new VM (range)", "most affected", "contended", "settings", "tied with")


def show_answer(answer: Recommendation, *, explain: bool, commands: bool, most: int | None = None) -> None:
    """Print what the document of an answer says, around the table of hosts; reasons and commands of so many of them."""
    document = offline.placement_document(answer, every_rejection=explain and most is None)
    said = {section.id: section for section in document.sections}

    def show(name: str) -> None:
        if (section := said.get(name)) is None:
            return
        say()
        say(f"{section.title}: {section.note}" if section.note else f"{section.title}:")
        for table in offline.text_tables(section):
            print_table(table.headings, table.rows, right=tuple(table.numeric))
        for sentence in section.sentences:
            say(f"  {sentence}")

    for sentence in (document.headline, *document.sentences):
        say(sentence)
    if answer.candidates:
        say()
        rows = [_row(candidate, unpins=answer.unpins(candidate)) for candidate in answer.candidates]
        if answer.present is not None:
            rows.append(("now", f"{answer.present.host}, as it is", *_row(answer.present)[2:]))
        print_table(HEADERS, rows, right=(0, 2, 5))
    show("tuned")
    if answer.tuned:
        rows = [_row(candidate, unpins=answer.unpins(candidate))[1:-1] for candidate in answer.tuned]
        print_table(HEADERS[1:-1], rows, right=(1, 4))
    for candidate in (*answer.candidates, *answer.tuned)[:most]:
        if explain:
            show(f"why-{candidate.host}{'-tuned' * bool(candidate.tuning)}")
        if not candidate.tuning:
            show(f"tried-{candidate.host}")
        if commands:
            show_commands(candidate)
    show("rejected")
    for rejected in answer.rejected:
        if explain:
            show(f"tried-{rejected.host}")
    say()
    for name in ("notes", "advice", "model"):
        for sentence in said[name].sentences if name in said else ():
            say(sentence)


def sizes_only(cloud: Inventory) -> int:
    """Of how many instances nothing is known but their size."""
    profiles = {workload.name for workload in cloud.workloads}
    return sum(each.workload not in profiles and "cpu" not in each.demand for each in cloud.instances)


def _row(candidate: Candidate, *, unpins: bool = False) -> tuple[object, ...]:
    changes = () if candidate.tuning else candidate.changes.items()
    gets = [f"{name} gets: {settings_in_words(settings)}" for name, settings in changes]
    own = settings_in_words(candidate.isolation)
    return (
        candidate.rank,
        candidate.host,
        shown(candidate.score, 3, score_figure),
        ratio(candidate.new_vm),
        _worst(candidate),
        _shortest(candidate),
        "; ".join([f"unpin, {own}".removesuffix(f", {AS_IS}") if unpins else own, *gets]),
        ", ".join(candidate.tied_elsewhere),
    )


def show_commands(candidate: Candidate) -> None:
    """Print the commands that a candidate needs, each with its undo."""
    say()
    after, order = (" after these changes", " (undo goes backwards)") if candidate.tuning else ("", "")
    say(f"Commands for {candidate.host}{after}, each with its undo{order}; nothing was run:")
    if not candidate.commands:
        say("  none needed")
    for command in candidate.commands:
        if not command.argv:  # something to write into a file, which is no command
            for line in command.note.splitlines():
                say(f"  # {line}")
            continue
        say(f"  {shlex.join(command.argv)}{f'    # {command.note}' if command.note else ''}")
        if command.undo:
            say(f"    undo: {shlex.join(command.undo)}")


def ratio(effect: Effect) -> str:
    """T/B with its range."""
    band = effect.throughput_ratio
    return f"{shown(band.expected, 2)} ({shown(band.lower, 2)}-{shown(band.upper, 2)})"


def cpu_share(effect: Effect) -> str:
    """CPU delivered as a part of demand; empty where that was not predicted."""
    return "" if effect.cpu is None else shown(effect.cpu.share, 3)


def short(effect: Effect) -> str:
    """Contended time; empty where that was not predicted."""
    return "" if effect.cpu is None else time_part(significant(effect.cpu.short) or 0.0)


def _shortest(candidate: Candidate) -> str:
    """The contended time of the most contended instance there."""
    known = [effect for effect in (candidate.new_vm, *candidate.neighbours) if effect.cpu is not None]
    if any(effect.overloaded for effect in known):
        return "overloaded"
    worst = max(known, key=lambda effect: effect.cpu.short if effect.cpu else 0.0, default=None)
    return short(worst) if worst else ""


def times(band: Band | None) -> str:
    """A ratio to alone; empty where it was not predicted."""
    return "" if band is None else shown(band.expected, 2)


def remark(effect: Effect) -> str:
    """What T/B rests on."""
    return "" if effect.basis is None else effect.basis.sentence


def _worst(candidate: Candidate) -> str:
    worst = offline.worst_neighbour(candidate)
    return f"{worst.instance} {shown(worst.throughput_ratio.expected, 2)}" if worst else "none"


def shown(value: float, places: int, rounded: Callable[[float], float | None] = significant) -> str:
    """A figure rounded as a service does, so that its answer reads as the same answer on a file."""
    figure = rounded(value)
    return f"{math.inf if figure is None else figure:.{places}f}"


# The questions about one instance or one host on files: where, predict; no server and no database.

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
    cloud = asked_questions(server, token_file, inventory, model=model)
    if instance is None and like is None:
        raise InvalidInput("name the instance with --instance, or one that it is like with --like", field="instance")
    described, given = _described(cloud, instance, like)
    if isinstance(cloud, FileCloud):
        cloud, given = cloud.stands(described, given, like=like is not None)
    named = tuple(cloud.id_of("hosts", name) for name in names_of("--hosts", question["hosts"]) or ()) or None
    request = PlacementRequest(described, dry_run=True, **{**question, "hosts": named})
    new = _written(described, given) | ({} if like is None else {"like": cloud.id_of("instances", like)})
    answer = cloud.place({**written(request, apart=("instance", "constraints")), "instance": new}, request)
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
    cloud = _asked_scene(server, token_file, scene, model)
    answer = cloud.predict(offline.load_scene(scene, cloud.find))
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


def _asked_scene(server: str | None, token_file: Path | None, scene: Path, model: Path | None) -> Service | FileCloud:
    """The service to ask about a scene, else this process, which knows of no instance but those in the file."""
    service = asked_service(server, token_file, None if server or os.environ.get(SERVER) else scene, model=model)
    return service or FileCloud(Inventory(), model)


def _described(
    cloud: Service | FileCloud, instance: str | None, like: str | None
) -> tuple[Instance, Mapping[str, Any]]:
    """The instance in question as far as the question says it, and its fields; the cloud knows the rest."""
    if instance is None:
        return Instance(NEW), {}
    if is_file(instance):
        described, given = offline.load_asked(Path(instance))
        _check_like(described.id, given, like)
        return described, given
    if isinstance(cloud, FileCloud):
        return Instance(instance_of(cloud.cloud, instance).id), {}
    with cloud.read_as("instance"):
        return Instance(cloud.named("instances", instance)["id"]), {}


def _written(instance: Instance, given: Mapping[str, Any]) -> dict[str, Any]:
    """An instance as the body of a placement has it, with no field but those that are given."""
    from api.schemas.inventory import InstanceItem

    item = InstanceItem.of(instance).model_dump(mode="json", exclude_none=True)
    sent = given.keys() - {"host", "settings"}
    new: dict[str, Any] = {"id": instance.id, **{name: item[name] for name in sent if name in item}}
    for name in given.get("settings", {}):
        if name == "pinning":
            new["pinning"] = item.get("pinning")
        else:
            new.setdefault("isolation", {})[name] = item["isolation"].get(name)
    return new


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
