"""The command `demo`: a question on an example cloud that comes with the program, or the service with a cloud."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import Inventory, PlacementRequest
from advisor.errors import InvalidInput
from api.cli.ask import show_answer, sizes_only
from api.cli.options import AsJson, settings
from api.cli.output import print_json, say

FOLDER = Path(__file__).parent / "demo_cloud"
CLOUD, NEW_VM = "cloud.yaml", "new-vm.yaml"
_LISTEN = "127.0.0.1:8080"


def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Start the service with the cloud, in a temporary folder, on this machine.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Start the service with a cloud that lives: real containers on this machine where that is possible "
            "(root, Linux), else the recorded day.",
        ),
    ] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Start the service with the recorded day of a cloud of real containers.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT", help="Where --serve, --live or --replay listens.", show_default="127.0.0.1:8080"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the cloud and the question there.", show_default="not written"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question on an example cloud, or serve it, or serve a live cloud of containers.

    12 hosts of 64 CPUs with 150 VMs, whose demand monitoring knows. Neither a database nor a learned model is used.
    The one that lives has 6 hosts with 19 containers, whose agents push what they measure, and a day passes in minutes.
    Its containers use half of the machine's CPUs at most, and end after two hours or with the command.
    """
    if sum((serve, live, replay, out is not None, as_json)) > 1:
        raise InvalidInput("--serve, --live, --replay, --out and --json exclude each other")
    if listen is not None and not (serve or live or replay):
        raise InvalidInput("--listen says where --serve, --live or --replay listens; add --serve", field="listen")
    if out is not None:
        _write(out)
    elif live or replay:
        from api.cli import living_demo  # with the service, which an answer alone does without

        living_demo.serve(listen or _LISTEN, live=live)
    elif serve:
        _serve(listen or _LISTEN)
    else:
        _answer(as_json=as_json)


def _answer(*, as_json: bool) -> None:
    """Ask where the new VM should go, and print the answer."""
    cloud = offline.load_inventory(FOLDER / CLOUD)
    new_vm = offline.load_instances(FOLDER / NEW_VM)[0]
    request = PlacementRequest(instance=new_vm, limit=len(cloud.hosts), explain=True, commands=True, dry_run=True)
    with TemporaryDirectory(prefix="cotenant-demo-") as folder:  # where no learned model is
        answer = offline.where(cloud, request, model=None, settings=settings(state_dir=Path(folder)))
    known, nova = _known(cloud), offline.most_free(cloud, answer)
    if as_json:
        print_json({"known": known, "most_free": None if nova is None else nova.host, "recommendation": answer})
        return
    say(f"An example cloud, made up: {known['hosts']} hosts of 64 CPUs, {known['instances']} VMs.")
    say(f"Of {known['demands']} VMs the demand for CPUs is known, of {known['sizes_only']} only the size.")
    say()
    say(f"Question: where should {new_vm.id} go ({new_vm.vcpus} vCPUs, {new_vm.memory_mb:g} MB)?")
    say()
    show_answer(answer, explain=True, commands=True, most=1)  # of every host they would fill several screens
    if nova is not None and nova.neighbours and nova.host != answer.best.host:
        worst = min(nova.neighbours, key=lambda effect: effect.throughput_ratio.expected)
        said = f"{worst.instance} would run at {100 * worst.throughput_ratio.expected:.0f} % of its uncontended speed"
        say()
        say(f"Most vCPUs and memory are free on {nova.host}, which Nova's default weighers would choose: there {said}.")
    say()
    say("Next:")
    say("  cotenant demo --live         a small cloud of real containers on the web page: see it change")
    say("  cotenant demo --serve        the same cloud with web page and REST API")
    say("  cotenant demo --out demo     its files in the folder demo; replace them by your own, then")
    say(f"  cotenant where demo/{CLOUD} --instance demo/{NEW_VM} --explain --commands")


def _known(cloud: Inventory) -> dict[str, int]:
    """How many hosts and instances there are, and of how many instances the demand is known."""
    unknown = sizes_only(cloud)
    return {
        "hosts": len(cloud.hosts),
        "instances": len(cloud.instances),
        "sizes_only": unknown,
        "demands": len(cloud.instances) - unknown,
    }


def _serve(listen: str) -> None:
    """Serve the cloud until SIGTERM or Ctrl-C; nothing of it remains."""
    from advisor.service import Advisor  # with the database, which an answer alone does without
    from api.auth import parse_listen, require_loopback
    from api.cli.serve import run_service

    require_loopback(parse_listen(listen)[0])
    with TemporaryDirectory(prefix="cotenant-demo-") as folder:
        database = f"sqlite:///{folder}/demo.sqlite3"
        chosen = settings(listen=listen, database=database, state_dir=Path(folder))
        with Advisor(chosen) as advisor:
            advisor.inventory.put(offline.load_inventory(FOLDER / CLOUD), mode="replace", generation=None)
        run_service(chosen)


def _write(folder: Path) -> None:
    """Write both files; InvalidInput where one is there already, or the folder cannot be written."""
    for name in (CLOUD, NEW_VM):
        if (folder / name).exists():
            raise InvalidInput(f"{folder / name} is there already; name another folder", field="out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CLOUD, NEW_VM):
            shutil.copyfile(FOLDER / name, folder / name)
    except OSError as error:
        raise InvalidInput(f"cannot write to {folder}: {error.strerror or error}", field="out") from error
    say(f"{CLOUD} and {NEW_VM} are in {folder}.")
