"""Shared by all checks: the rule, the finding, and the view of the host that rules read."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from profiler.backends.commands import run_tool
from profiler.backends.sources import HostSource
from profiler.parse.proc import parse_counter
from profiler.parse.text import ParseError

State = Literal["ok", "warning", "unknown"]
Where = Literal["everywhere", "linux", "dom0"]
T = TypeVar("T")

NOTICEABLE_PERCENT = 0.5  # a smaller share cannot move a throughput by more than runs differ anyway
_SHOWN = 160
_DENIED = (errno.EACCES, errno.EPERM)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: what the condition distorts and how to mend it; both are empty where it is fine.

    Where the state is unknown, `distorts` is what may be distorted and `fix` how to see more.
    """

    name: str
    state: State
    value: str
    distorts: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What a rule found; `fix` takes the place of the rule's own where it depends on the finding."""

    fine: bool
    value: str
    fix: str = ""


class UnseenError(Exception):
    """A fact that a rule needs is not visible on this host; `fix` says how to make it visible, where that is known.

    `number` is the errno of the file that could not be read.
    """

    def __init__(self, reason: str, fix: str = "", number: int | None = None) -> None:
        super().__init__(reason)
        self.fix = fix
        self.number = number


@dataclass(frozen=True, slots=True)
class CheckRule:
    """One check: `look` returns None where it does not apply, and raises UnseenError where the result is unknown.

    `where` leaves out hosts on which files mean something else. "linux" = not in Xen's Dom0, where Linux sees virtual
    CPUs; "dom0" = only there, where Xen's tools are.
    """

    name: str
    look: Callable[[HostView], CheckFinding | None]
    distorts: str
    fix: str
    where: Where = "everywhere"

    def check(self, view: HostView) -> Check | None:
        """Run the check; what is malformed or hidden makes the state unknown, never an error."""
        if self.where != "everywhere" and view.dom0 != (self.where == "dom0"):
            return None
        try:
            finding = self.look(view)
        except UnseenError as unseen:
            return Check(self.name, "unknown", shown(str(unseen)), self.distorts, unseen.fix)
        except ParseError as error:
            return Check(self.name, "unknown", shown(f"not understood: {error}"), self.distorts)
        if finding is None:
            return None
        if finding.fine:
            return Check(self.name, "ok", shown(finding.value))
        return Check(self.name, "warning", shown(finding.value), self.distorts, finding.fix or self.fix)


def shown(text: str) -> str:
    """Text from outside as one short line that is safe to print."""
    line = _UNPRINTABLE.sub("?", " ".join(text.split()))
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


class HostView:
    """A host as rules see it: files and tools now, and watched files also as they were `seconds` before."""

    def __init__(self, source: HostSource, watched: Sequence[str]) -> None:
        self.source = source
        self._outputs: dict[tuple[str, ...], str | OSError] = {}
        self._hung: dict[str, OSError] = {}
        self._began = source.clock()
        self._earlier = {path: self._read_or_error(path) for path in watched}
        self._ended = self._began

    def look_again(self) -> None:
        """End the watching: rules see changes from the start until now."""
        self._ended = self.source.clock()

    @property
    def seconds(self) -> float:
        """Length of the watching on the monotonic clock; UnseenError where that clock stood still."""
        seconds = self._ended[1] - self._began[1]
        if not seconds > 0:
            raise UnseenError("the monotonic clock stands still")
        return seconds

    @property
    def wall_step_s(self) -> float:
        """How far the wall clock was moved against the monotonic clock while watching."""
        return (self._ended[0] - self._began[0]) - (self._ended[1] - self._began[1])

    def read(self, path: str) -> str:
        """Text of a file without blanks around it; UnseenError with the reason when there is none."""
        try:
            return self.source.read(path).strip()
        except OSError as error:
            raise _unseen(error, path) from None

    def find(self, path: str) -> str | None:
        """As `read`, but None where the file does not exist."""
        try:
            return self.source.read(path).strip()
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise _unseen(error, path) from None

    def count(self, path: str) -> int:
        """A file that holds one number that is not negative."""
        return parse_counter(self.read(path), path)

    def change(self, path: str, parse: Callable[[str, str], T]) -> tuple[T, T]:
        """A watched file at the start of the watching and now, both parsed."""
        earlier = self._earlier[path]
        if isinstance(earlier, OSError):
            raise _unseen(earlier, path)
        return parse(earlier, path), parse(self.read(path), path)

    def folders(self, path: str) -> list[str] | None:
        """Names of the folders in a folder; None where it does not exist."""
        try:
            return self.source.names(path)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise _unseen(error, path) from None

    def numbered(self, path: str, prefix: str) -> list[int]:
        """Numbers of the folders `<prefix><number>` in a folder, in order."""
        pattern = re.compile(rf"{prefix}([0-9]{{1,7}})\Z")
        return sorted(int(match[1]) for name in self.folders(path) or () if (match := pattern.match(name)))

    def value(self, key: str, read: Callable[[], T]) -> T:
        """As `HostSource.value`: an answer that no file holds. UnseenError on failure."""
        try:
            return self.source.value(key, read)
        except OSError as error:
            raise _unseen(error, key) from None

    def tool(self, *argv: str) -> str:
        """Output of a tool, which runs once for each command line; a tool that hung is not started again."""
        if argv not in self._outputs:
            self._outputs[argv] = self._hung.get(argv[0]) or self._run(argv)
        output = self._outputs[argv]
        if isinstance(output, OSError):
            raise _unseen(output, argv[0])
        return output

    def _run(self, argv: tuple[str, ...]) -> str | OSError:
        try:
            return self.source.value(" ".join(argv), lambda: run_tool(argv))
        except TimeoutError as error:
            self._hung[argv[0]] = error
            return error
        except OSError as error:
            return error

    @cached_property
    def dom0(self) -> bool:
        """Whether this is Xen's control domain."""
        try:
            return "control_d" in (self.find("/proc/xen/capabilities") or "")
        except UnseenError:
            return False

    @cached_property
    def virtual(self) -> bool | None:
        """Whether a hypervisor is below this Linux; None = not known. Source: arch/x86, X86_FEATURE_HYPERVISOR."""
        if self.dom0:
            return None
        try:
            flags = re.search(r"^flags\s*:(.*)$", self.read("/proc/cpuinfo"), re.MULTILINE)
        except UnseenError:
            return None
        return "hypervisor" in flags[1].split() if flags else None  # other processors than x86 have no such line

    @cached_property
    def commands(self) -> dict[int, str]:
        """Names of all processes by number; UnseenError where those of others are hidden (proc(5), hidepid)."""
        self.read("/proc/1/comm")
        names = ((process, self.find(f"/proc/{process}/comm")) for process in self.numbered("/proc", ""))
        return {process: name for process, name in names if name}

    def _read_or_error(self, path: str) -> str | OSError:
        try:
            return self.source.read(path)
        except OSError as error:
            return error


def _unseen(error: OSError, what: str) -> UnseenError:
    if error.errno in _DENIED:
        return UnseenError(f"{what}: permission denied", "run as root", error.errno)
    if error.errno in _NO_FILE:
        return UnseenError(f"{what} is not there", number=error.errno)
    return UnseenError(f"{what}: {error.strerror or str(error) or 'cannot be read'}", number=error.errno)
