"""`cotenant-profiler act`: a process of its own that changes settings by signed orders of the service."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from pathlib import Path

from profiler.backends import Backend, BackendError
from profiler.backends.detection import find_backend
from profiler.cli.shared_options import (
    DONE,
    FAILED,
    WRONG_USAGE,
    add_backend,
    add_push,
    an_id,
    fail,
    profiler_version,
)
from profiler.names import instance_id
from profiler.observed import Instance

_ALLOWED = Path("/etc/cotenant-profiler/changes.toml")
_KEY = Path("/etc/cotenant-profiler/orders.key")
_MEMORY = Path("/var/lib/cotenant-profiler-act/orders.json")
_LISTED_S = 5.0  # the instances of this host are listed again after so long
_GROUP, _GROUPS, _DOMAINS = "cgroup", "control-groups", "libvirt"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    act = commands.add_parser(
        "act", help="change settings of instances by signed orders of the service, within what a file here allows"
    )
    add_backend(act)
    act.add_argument(
        "--host", type=an_id("host"), metavar="ID", help="this host's id in the inventory (default: its host name)"
    )
    add_push(act, "reports, and gives orders")
    act.add_argument(
        "--allowed", type=Path, default=_ALLOWED, metavar="FILE",
        help=f"what may be changed here; of root, and written by no other user ({_ALLOWED})",
    )  # fmt: skip
    act.add_argument(
        "--key-file", type=Path, default=_KEY, metavar="FILE",
        help=f"key by which orders are signed, mode 640 or less ({_KEY})",
    )  # fmt: skip
    act.add_argument(
        "--memory", type=Path, default=_MEMORY, metavar="FILE", help=f"what it must not forget when it ends ({_MEMORY})"
    )
    act.add_argument(
        "--uri", type=an_uri, default="qemu:///system", metavar="URI",
        help="connection by which virsh changes domains of this host (qemu:///system)",
    )  # fmt: skip
    act.add_argument("--json", action="store_true", help="log lines as JSON")
    act.set_defaults(command=_act)


def an_uri(text: str) -> str:
    """A connection of libvirt, which virsh does not read as an option."""
    if not text or text.startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r} is no connection such as qemu:///system")
    return text


def _act(options: argparse.Namespace) -> int:
    from profiler.acting.actor import Actor
    from profiler.acting.allowed import read_allowed
    from profiler.acting.domains import DomainSettings
    from profiler.acting.group_files import GroupFiles
    from profiler.acting.orders import Memory, check_key
    from profiler.agent.http_client import HttpClient
    from profiler.agent.loop import Log
    from profiler.agent.push import PushToken
    from profiler.files import read_secret

    if options.push is None:
        return fail("act needs --push: the service whose orders it carries out", WRONG_USAGE)
    try:
        key = check_key(read_secret(options.key_file))
        read_allowed(options.allowed)
        memory = Memory(options.memory)
        token = PushToken(options.token_file, options.push)
    except ValueError as error:
        return fail(str(error), FAILED)
    backend = find_backend(options.backend, None, options.host, "off")
    log, stopped = Log(as_json=options.json), threading.Event()
    wire = HttpClient(options.push, token, f"cotenant-profiler/{profiler_version()}")
    actor = Actor(
        backend.host, wire, key, lambda: read_allowed(options.allowed), memory,
        {_GROUPS: GroupFiles(), _DOMAINS: DomainSettings(options.uri)}, Located(backend), log, time.time,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopped.set())
    log.info("start", version=profiler_version(), host=backend.host, allowed=str(options.allowed))
    while not stopped.wait(actor.step()):
        pass
    wire.close()
    backend.close()
    log.info("stop")
    return DONE


class Located:
    """Where an instance of this host is, by the backend's own list, which is at most some seconds old."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._listed_s = float("-inf")
        self._targets: dict[str, tuple[str, str]] = {}

    def __call__(self, instance: str) -> tuple[str, str] | None:
        now = time.monotonic()
        if now - self._listed_s >= _LISTED_S or instance not in self._targets:
            try:
                listed = self._backend.list_instances()
            except BackendError:
                return None
            self._targets = {one.id: self._target(one) for one in listed}
            self._listed_s = now
        return self._targets.get(instance)

    def _target(self, one: Instance) -> tuple[str, str]:
        """Containers by their group; domains by the name that the hypervisor knows."""
        if _GROUP in one.labels:
            return _GROUPS, one.labels[_GROUP]
        own = one.labels.get("name", "")
        return _DOMAINS, own if instance_id(own) == one.id else one.id
