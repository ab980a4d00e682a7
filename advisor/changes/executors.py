"""What a package offers so that `cotenant apply` can change a system, and the executors that are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from advisor import plug_ins
from advisor.domain import Change, ChangeKind, Command, Host
from advisor.errors import AdvisorError, InvalidInput

BY_AGENT = "agent:"  # before the name of an executor that an agent stands for


class ChangeFailed(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """The system does not do what it was asked, or cannot be read."""


class Gone(ChangeFailed):
    """The instance or its control group is not on that host any more."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a command changes: the kind, what it addresses, and the settings before and after, as texts by name."""

    kind: ChangeKind
    target: str
    before: Mapping[str, str]
    after: Mapping[str, str]


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


@dataclass(frozen=True, slots=True)
class Reach:
    """Which hosts this process reaches: `here` are the ids of the machine that it runs on, `uris` the libvirt
    connections of hosts by id, `agents` the hosts whose agents take orders, and the way to them."""

    here: frozenset[str] = frozenset()
    uris: Mapping[str, str] | None = None
    agents: Agents | None = None


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """An executor, offered as an entry point of the group `cotenant.executors` under its name:

        [project.entry-points."cotenant.executors"]
        example = "cotenant_example:EXECUTOR"

    Args:
        open: Makes it; nothing is read yet.
        tools: The tools of rendered commands (`Command.tool`) that it carries out, by `Executor.meaning`.
        understand: `Executor.meaning` on a host that this process does not reach: where agents carry it out.
    """

    open: Callable[[Reach], Executor]
    tools: tuple[str, ...]
    understand: Callable[[Host, Command], Meaning] | None = None


class Executors:
    """The executors of one process, each opened when it is first needed."""

    def __init__(self, reach: Reach, kinds: Mapping[str, ExecutorKind] | None = None) -> None:
        self._reach = reach
        self._kinds = kinds
        self._open: dict[str, Executor] = {}

    @property
    def kinds(self) -> Mapping[str, ExecutorKind]:
        """All that are installed, by name."""
        if self._kinds is None:
            self._kinds = {
                name: plug_ins.load(plug_ins.EXECUTORS, name, "executor", "executor")
                for name in plug_ins.names(plug_ins.EXECUTORS)
            }
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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none, for none is installed"
