"""What a package offers so that `cotenant apply` can change a system, and the executors that are installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from advisor import plug_ins
from advisor.domain import Change, ChangeKind, Command, Host, Instance
from advisor.errors import AdvisorError, InvalidInput
from advisor.render.names import NATIVE, target_of

log = logging.getLogger(__name__)
HOST = "host"  # the one setting of a move: the id of the host on which the instance is
OPEN = "open"  # the one setting of a host: whether new instances may come to it, yes or no
YES, NO = "yes", "no"

BY_AGENT = "agent:"  # before the name of an executor that an agent stands for


class ChangeFailed(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """The system does not do what it was asked, or cannot be read."""


class Gone(ChangeFailed):
    """The instance or its control group is not on that host any more."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a command changes: the kind, what it addresses, and the settings before and after, as texts by name.

    `command` and `undo` are the same for people, where the rendered ones are not what is done.
    """

    kind: ChangeKind
    target: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    command: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


class Executor(Protocol):
    """Reads and changes one kind of system.

    Texts are as the system shows them, so that what was read can be written back as it was. None of the methods runs
    a shell; all that stands in a Change was checked by `meaning`, and is checked again, for a ledger may be edited.
    """

    def meaning(self, host: Host, command: Command) -> Meaning:
        """What a rendered command changes; InvalidInput for one that this executor does not carry out."""
        ...

    def read(self, change: Change) -> Mapping[str, str]:
        """The present texts of the settings in `change.after`; Gone, ChangeFailed."""
        ...

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        """Give settings of `change` these texts, in this order, and wait until they hold; Gone, ChangeFailed."""
        ...

    def same(self, setting: str, one: str, other: str) -> bool:
        """Whether two texts of a setting mean the same."""
        ...


class Agents(Protocol):
    """Makes executors that reach hosts by the agents there."""

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts whose agents take orders."""
        ...

    def executor(self, system: str, kind: ExecutorKind) -> Executor:
        """One that leaves the settings of `system` to them; InvalidInput where agents do not change that."""
        ...


class MovingExecutor(Executor, Protocol):
    """One that moves instances, too. `read` of a move waits until no migration of the instance is under way."""

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        """The live migration, as the setting HOST; InvalidInput where it is none."""
        ...


class ClosingExecutor(Executor, Protocol):
    """One that tells a scheduler which hosts take new instances."""

    def closing(self, host: Host) -> Meaning:
        """That this host takes none from now on, as the setting OPEN; InvalidInput where the system is not asked."""
        ...


@dataclass(frozen=True, slots=True)
class Reach:
    """Which hosts this process reaches: `here` are the ids of the machine that it runs on, `uris` the libvirt
    connections of hosts by id, `agents` the hosts whose agents take orders, and the way to them. A migration that is
    not done after `move_s` seconds is called off."""

    here: frozenset[str] = frozenset()
    uris: Mapping[str, str] | None = None
    agents: Agents | None = None
    move_s: float = 900.0


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """An executor, offered as an entry point of the group `cotenant.executors` under its name:

        [project.entry-points."cotenant.executors"]
        example = "cotenant_example:EXECUTOR"

    Args:
        open: Makes it; nothing is read yet.
        tools: The tools of rendered commands (`Command.tool`) that it carries out, by `Executor.meaning`.
        understand: `Executor.meaning` on a host that this process does not reach: where agents carry it out.
        moves: Whose instances it moves (MovingExecutor): what the label `render` of hosts says, the first part of their
            label `source`, or their kind.
        closes: Whose hosts it closes (ClosingExecutor), likewise.
    """

    open: Callable[[Reach], Executor]
    tools: tuple[str, ...] = ()
    understand: Callable[[Host, Command], Meaning] | None = None
    moves: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()


class Executors:
    """The executors of one process, each opened when it is first needed; `own` are there already, by name."""

    def __init__(
        self,
        reach: Reach,
        kinds: Mapping[str, ExecutorKind] | None = None,
        *,
        own: Mapping[str, ClosingExecutor] | None = None,
    ) -> None:
        self._reach = reach
        self._kinds = kinds
        self._own = dict(own or {})
        self._open: dict[str, Executor] = dict(self._own)

    @property
    def kinds(self) -> Mapping[str, ExecutorKind]:
        """All that are installed and can be loaded, by name."""
        if self._kinds is None:
            kinds: dict[str, ExecutorKind] = {}
            for name in plug_ins.names(plug_ins.EXECUTORS):
                try:
                    kinds[name] = plug_ins.load(plug_ins.EXECUTORS, name, "executor", "executor")
                except InvalidInput as error:  # the others go on without it
                    log.warning("%s", error.message)
            self._kinds = kinds
        return self._kinds

    def named(self, name: str) -> Executor:
        """The executor of this name; InvalidInput where none is installed."""
        if name not in self._open:
            system = name.removeprefix(BY_AGENT)
            if system not in self.kinds:
                raise InvalidInput(f"executor {name[:60]!r} is none of {_listed(self.kinds)}", field="executor")
            kind = self.kinds[system]
            self._open[name] = kind.open(self._reach) if name == system else self._agents.executor(system, kind)
        return self._open[name]

    @property
    def _agents(self) -> Agents:
        if self._reach.agents is None:
            raise InvalidInput("this process has no keys of agents: name them in apply_keys_file", field="executor")
        return self._reach.agents

    def meaning(self, host: Host, command: Command) -> tuple[str, Meaning]:
        """Which executor carries a rendered command out, and what it changes; InvalidInput where none does."""
        for name, kind in self.kinds.items():
            if command.tool in kind.tools:
                agents = self._reach.agents
                there = bool(kind.understand and agents and host.id in agents.hosts - self._reach.here)
                executor = f"{BY_AGENT}{name}" if there else name
                return executor, self.named(executor).meaning(host, command)
        message = f"no executor carries out {command.tool}: run it by hand, or install one ({plug_ins.EXECUTORS})"
        raise InvalidInput(message, field="command")

    def moving(self, instance: Instance, source: Host, target: Host) -> tuple[str, Meaning]:
        """Which executor moves an instance from one host to another; InvalidInput where none does."""
        for system in _systems(source):
            for name, kind in self.kinds.items():
                if system in kind.moves and system in _systems(target):
                    return name, cast(MovingExecutor, self.named(name)).moving(instance, source, target)
        raise InvalidInput(f"no executor moves {instance.id} from {source.id} to {target.id}", field="steps")

    def closing(self, host: Host) -> tuple[str, Meaning]:
        """Which executor keeps new instances from a host: its scheduler's, else one of the process's own."""
        for system in _systems(host):
            for name, kind in self.kinds.items():
                if system in kind.closes:
                    return name, cast(ClosingExecutor, self.named(name)).closing(host)
        for name, own in self._own.items():
            return name, own.closing(host)
        raise InvalidInput(f"no executor keeps new instances from {host.id}", field="host")


def cloud_of(one: Host | Instance) -> str:
    """The name of its cloud, where several are read: what stands after the colon in its label `source`."""
    return one.labels.get("source", "").partition(":")[2]


def _systems(host: Host) -> tuple[str, ...]:
    """What its system goes by, the nearest first."""
    runs = target_of(host, None)
    return (runs,) if runs != NATIVE else (host.labels.get("source", "").partition(":")[0], host.kind)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none, for none is installed"
