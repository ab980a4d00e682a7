"""Control groups, version 1 and 2, of the machine that this process runs on: settings are files of a group.

`cgset` commands of `advisor.render` say what is set; `profiler.acting` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from advisor.changes.controller import ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.domain import Change, ChangeKind, Command, Host
from advisor.errors import InvalidInput
from advisor.render.names import cgroup_version
from profiler.acting.allowed import SettingGone, SettingNotSet, SettingRefused
from profiler.acting.group_files import BY_DEVICE, FILES, GroupFiles, file_of


class ControlGroups:
    """Groups of the hosts `here`, which are this machine; `mounts` as GroupFiles has them."""

    def __init__(self, here: frozenset[str], mounts: Mapping[str, str] | None = None) -> None:
        self._here = here
        self._files = GroupFiles(mounts)

    def meaning(self, host: Host, command: Command) -> Meaning:
        self._check_here(host.id)
        group, before, after = parsed(command)
        with _said("command"):
            for name in after:
                self._files.check(group, name)
            return Meaning(cast("ChangeKind", self._files.kind(next(iter(after)))), group, before, after)

    def read(self, change: Change) -> Mapping[str, str]:
        self._check_here(change.host)
        with _said("target", change):
            return self._files.read(change.target, change.after)

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        self._check_here(change.host)
        with _said("command", change):
            self._files.write(change.target, values)

    def same(self, setting: str, one: str, other: str) -> bool:
        return self._files.same(setting, one, other)

    def _check_here(self, host: str) -> None:
        if host not in self._here:
            message = (
                f"control groups of {host} are changed on {host} itself: run the command there, with --here {host}"
            )
            raise InvalidInput(message, field="host")


def understand(host: Host, command: Command) -> Meaning:
    """What a rendered `cgset` command changes on a host that is not this machine, by the version that it announced."""
    group, before, after = parsed(command)
    version = cgroup_version(host)
    if version is None:
        raise InvalidInput(f"host {host.id} says no version of control groups: its agent announces it", field="host")
    kinds = {FILES[version].get(file_of(name)) for name in after}
    if len(kinds) != 1 or None in kinds:
        raise InvalidInput(f"{' '.join(command.argv)[:200]} sets what is no file of version {version}", field="command")
    return Meaning(cast("ChangeKind", kinds.pop()), group, before, after)


def parsed(command: Command) -> tuple[str, dict[str, str], dict[str, str]]:
    """The group of a rendered `cgset` command, and the texts that its undo and itself set; InvalidInput."""
    (group, after), (_, before) = _parsed(command.argv), _parsed(command.undo)
    if not after or before.keys() != after.keys():
        raise InvalidInput(f"{' '.join(command.argv)[:200]} sets other files than its undo", field="command")
    return group, before, after


def _parsed(argv: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Group and texts by file of `cgset -r FILE=TEXT … -- GROUP`; those of one device apart."""
    group, texts, parts = "", {}, list(argv[1:])
    while parts:
        part = parts.pop(0)
        if part == "--" and len(parts) == 1:
            group = parts.pop()
        elif part == "-r" and parts:
            file, equals, text = parts.pop(0).partition("=")
            number, _, values = text.partition(" ")
            by_device = bool(equals) and BY_DEVICE.match(f"{file} {number}")
            texts[f"{file} {number}" if by_device else file] = values if by_device else text
    if argv[:1] != ("cgset",) or not group:
        raise InvalidInput(f"{' '.join(argv)[:200]!r} is no cgset command as Cotenant renders it", field="command")
    return group, texts


@contextmanager
def _said(field: str, change: Change | None = None) -> Iterator[None]:
    """Errors of the files as those of the advisor, with what they are about."""
    about = f"{change.subject} on {change.host}: " if change else ""
    try:
        yield
    except SettingGone as error:
        raise Gone(f"{about}{error}") from error
    except SettingNotSet as error:
        raise ChangeFailed(f"{about}{error}") from error
    except SettingRefused as error:
        raise InvalidInput(str(error), field=field) from error


def _open(reach: Reach) -> Executor:
    return ControlGroups(reach.here)


EXECUTOR = ExecutorKind(_open, tools=("cgset",), understand=understand)
