"""Applies changes one by one through executors, which plug-ins bring, and takes them back.

Each step is a line in the ledger before it is done and one after. Between the two lines only the system knows whether
it was done, so a controller that goes on reads it: what has its new text is not set again, what has its old text is
set, and a third text was set by another program, which is left alone.

After each step of a plan all limits hold, so what was done up to one may stay. What is taken back stops at a move that
cannot be: who came before it came to a host that this instance had left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from advisor import plug_ins
from advisor.domain import Change, ChangeKind, ChangeStanding, Command, Host, Instance, LedgerEvent, RolloutStanding
from advisor.errors import AdvisorError, Conflict, InvalidInput
from advisor.render.names import NATIVE, target_of

# What a package offers so that `cotenant apply` can change a system, and the executors that are installed.

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
    """One that sets in a scheduler which hosts take new instances."""

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


T = TypeVar("T")
Texts = Mapping[str, str]
_SLOW = frozenset({"move", "host"})  # kinds of changes for which a system may take minutes
BEAT_S = 20.0  # after which the lease is extended meanwhile
_LISTED = 3  # settings that a sentence names


class Ledger(Protocol):
    """The lines of rollouts. Only the holder of the lease writes one; LeaseLost for another."""

    def standing(self, rollout: str) -> RolloutStanding:
        """How far a rollout came; NotFound."""
        ...

    def add(self, rollout: str, event: LedgerEvent, change: int | None = None, /, **detail: Any) -> None:
        """Append a line, durable when this returns, and extend the lease."""
        ...

    def hold(self) -> None:
        """Extend the lease while a step takes its time; LeaseLost where another controller has it."""
        ...

    def frozen(self) -> str:
        """Why nothing may be applied now; empty = it may."""
        ...


class LeaseLost(Conflict):
    """Another controller acts now; this one stops at once, before it does anything more."""


class Controller:
    """Acts for one holder of the lease; `executor_of` gives an executor by name, `stop` is asked between steps."""

    def __init__(
        self, ledger: Ledger, executor_of: Callable[[str], Executor], *, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._ledger = ledger
        self._executor_of = executor_of
        self._stop = stop

    def carry_out(self, rollout: str) -> RolloutStanding:
        """Apply what is not applied yet, or go on with taking back; Conflict where it is at its end, or not approved.

        Where a step fails, all that was done is taken back in reverse order; a rollout that keeps what was done stops
        there, and tries that step again when it is carried out once more. It ends early, and can go on later, where the
        operator freezes changes, asks it to stop, or the canary is to be measured first.
        """
        standing = self._ledger.standing(rollout)
        if standing.state == "undoing":
            return self._take_back(rollout)
        if standing.state == "stopped" and standing.rollout.keeps and not standing.undo_begun:
            self._ledger.add(rollout, "continued")
            standing = self._ledger.standing(rollout)
        if standing.state not in ("approved", "applying", "canary"):
            raise Conflict(f"rollout {rollout} is {_spoken(standing.state)}: nothing of it is left to carry out")
        failed = next((number for number, one in enumerate(standing.changes) if one.state == "failed"), None)
        if failed is not None:  # killed before the line that says so
            return self._give_up(rollout, failed, standing.changes[failed].why)
        for change in standing.rollout.changes:
            if standing.changes[change.number].state == "applied":
                continue
            if self._waits(rollout, standing, change):
                return self._ledger.standing(rollout)
            try:
                self._apply(rollout, change, standing.changes[change.number])
            except (ChangeFailed, InvalidInput) as error:
                self._ledger.add(rollout, "failed", change.number, why=error.message)
                return self._give_up(rollout, change.number, error.message)
        self._ledger.add(rollout, "carried_out")
        return self._ledger.standing(rollout)

    def undo(self, rollout: str, why: str) -> RolloutStanding:
        """Take back what was applied, in reverse order, to what was read before; Conflict where nothing was."""
        standing = self._ledger.standing(rollout)
        if standing.state not in ("applying", "canary", "carried_out", "undoing", "stopped"):
            raise Conflict(f"rollout {rollout} is {_spoken(standing.state)}: nothing of it is to be taken back")
        if standing.state != "undoing":
            self._ledger.add(rollout, "undo_begun", why=why)
        return self._take_back(rollout)

    def _give_up(self, rollout: str, failed: int, why: str) -> RolloutStanding:
        if self._ledger.standing(rollout).rollout.keeps:
            self._ledger.add(rollout, "stopped", why=f"change {failed + 1} failed, and what was done stays: {why}")
            return self._ledger.standing(rollout)
        self._ledger.add(rollout, "undo_begun", why=f"change {failed + 1} failed: {why}")
        return self._take_back(rollout)

    def _waits(self, rollout: str, standing: RolloutStanding, change: Change) -> bool:
        """Whether the rest is left for later."""
        if self._stop() or self._ledger.frozen():
            return True
        canary = standing.rollout.canary
        if not canary or change.number < canary or standing.continued:
            return False
        if standing.state != "canary":
            self._ledger.add(rollout, "canary", changes=canary)
        return True

    def _apply(self, rollout: str, change: Change, standing: ChangeStanding) -> None:
        executor = self._executor_of(change.executor)
        found = self._read(executor, change)
        if standing.state == "planned":
            _check_assumed(executor, change, found)
            self._ledger.add(rollout, "applying", change.number, before=dict(found), command=list(change.command))
        else:
            _check_own(executor, change, found, standing.before)
        desired = {name: text for name, text in change.after.items() if not executor.same(name, found[name], text)}
        if desired:
            self._slowly(change, lambda: executor.write(change, desired))
            found = self._read(executor, change)
        missed = _other_than(executor, found, change.after)
        if missed:
            raise ChangeFailed(f"the system keeps {missed} on {change.host}, and not what was set")
        self._ledger.add(rollout, "applied", change.number, found=dict(found))

    def _take_back(self, rollout: str) -> RolloutStanding:
        standing = self._ledger.standing(rollout)
        stuck = ""
        for change in reversed(standing.rollout.changes):
            one = standing.changes[change.number]
            if one.state in ("planned", "undone") or not one.before:
                continue  # nothing was set: the line before a step has what was read
            try:
                self._undo(rollout, change, one)
            except Gone as error:
                self._ledger.add(rollout, "undone", change.number, why=f"nothing is left to take back: {error.message}")
            except (ChangeFailed, InvalidInput) as error:
                stuck = stuck or error.message
                self._ledger.add(rollout, "left", change.number, why=error.message)
                if change.kind == "move":
                    break
        if stuck:
            self._ledger.add(rollout, "stopped", why=f"not all could be taken back: {stuck}")
        else:
            self._ledger.add(rollout, "taken_back")
        return self._ledger.standing(rollout)

    def _undo(self, rollout: str, change: Change, standing: ChangeStanding) -> None:
        executor = self._executor_of(change.executor)
        found = self._read(executor, change)
        _check_own(executor, change, found, standing.before)
        if standing.state != "undoing":
            self._ledger.add(rollout, "undoing", change.number, to=dict(standing.before))
        # Byte by byte, whatever means the same: the system is to be as it was.
        desired = {name: text for name, text in reversed(list(standing.before.items())) if found[name] != text}
        if desired:
            self._slowly(change, lambda: executor.write(change, desired))
            found = self._read(executor, change)
        missed = _other_than(executor, found, standing.before)
        if missed:
            raise ChangeFailed(f"the system keeps {missed} on {change.host}, and not what was there before")
        self._ledger.add(rollout, "undone", change.number, found=dict(found))

    def _read(self, executor: Executor, change: Change) -> Texts:
        found = self._slowly(change, lambda: executor.read(change))
        absent = [name for name in change.after if name not in found]
        if absent:
            raise ChangeFailed(f"{absent[0]} of {change.subject} cannot be read on {change.host}")
        return {name: found[name] for name in change.after}

    def _slowly(self, change: Change, act: Callable[[], T]) -> T:
        """Act, and keep the lease however long that takes."""
        if change.kind not in _SLOW:
            return act()
        with ThreadPoolExecutor(1, thread_name_prefix="change") as pool:
            acting = pool.submit(act)
            while not wait([acting], timeout=BEAT_S).done:
                self._ledger.hold()
            return acting.result()


def _check_assumed(executor: Executor, change: Change, found: Texts) -> None:
    """Refuse a change of what is neither as the plan assumes nor as it is to be already."""
    expected = {name: text for name, text in change.before.items() if name in found}
    other = _other_than(executor, {name: found[name] for name in expected}, expected)
    if other and _other_than(executor, found, change.after):
        raise ChangeFailed(f"{change.subject} on {change.host} has {other}, and not what was planned for: plan again")


def _check_own(executor: Executor, change: Change, found: Texts, before: Texts) -> None:
    """Refuse to touch what another program has set since."""
    foreign = {
        name: text
        for name, text in found.items()
        if not executor.same(name, text, change.after[name]) and not executor.same(name, text, before[name])
    }
    if foreign:
        raise ChangeFailed(f"another program set {_said(foreign)} of {change.subject} on {change.host}: left as it is")


def _other_than(executor: Executor, found: Texts, desired: Texts) -> str:
    """What is not as wanted, in words; empty = all is."""
    return _said({name: found[name] for name, text in desired.items() if not executor.same(name, found[name], text)})


def _said(texts: Texts) -> str:
    return ", ".join(f"{name} = {text[:60] or 'nothing'}" for name, text in list(texts.items())[:_LISTED])


def _spoken(state: str) -> str:
    return state.replace("_", " ")
