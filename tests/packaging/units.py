"""systemd's units as tests read them, and a process confined to the system calls that one allows.

    python units.py UNIT[,DROP-IN...] -- PROGRAM ARGUMENT ...

runs a program as the unit lets it: what SystemCallFilter= and MemoryDenyWriteExecute= refuse fails with EPERM.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
Unit = Mapping[str, tuple[str, ...]]  # every value of an option in its order; an empty one forgets those before it

_ALLOW, _EPERM = 0x7FFF0000, 0x00050001  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(EPERM)
_MASKED_EQUAL = 7  # SCMP_CMP_MASKED_EQ
_WRITE, _EXEC, _SHM_EXEC = 0x2, 0x4, 0o100000
# What MemoryDenyWriteExecute= refuses, by the bits of an argument: mmap's are protections, shmat's are flags.
_WRITE_EXECUTE = {
    "mmap": (2, _WRITE | _EXEC),
    "mprotect": (2, _EXEC),
    "pkey_mprotect": (2, _EXEC),
    "shmat": (2, _SHM_EXEC),
}


def read(*files: Path) -> Unit:
    """The options of section [Service] as systemd reads them, from a unit and its drop-ins in their order."""
    found: dict[str, tuple[str, ...]] = {}
    for file in files:
        service = file.read_text(encoding="utf-8").split("[Service]\n")[1].split("\n[")[0]
        for name, value in re.findall(r"^(\w+)=(.*)$", service, re.MULTILINE):
            found[name] = (*found.get(name, ()), value) if value else ()
    return found


def analyze(*arguments: str) -> str:
    """What systemd-analyze says, to people or as a fault; the test skips where systemd is not installed."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        import pytest  # a program that is to be confined does without

        pytest.skip("needs systemd-analyze (apt-get install systemd)")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def installed(folder: Path, unit: Path, *drop_ins: Path) -> Path:
    """The unit in a folder as an administrator puts it there, its program replaced by one that there is."""
    copy = folder / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    (folder / f"{unit.name}.d").mkdir()
    for drop_in in drop_ins:
        shutil.copy(drop_in, folder / f"{unit.name}.d")
    return copy


def verified(folder: Path, unit: Path, *drop_ins: Path) -> str:
    """What systemd has to say against a unit, "" for nothing."""
    return analyze("verify", str(installed(folder, unit, *drop_ins)))


def judged(unit: Path, *drop_ins: Path) -> tuple[float, set[str]]:
    """The exposure of a unit, 0 (none) to 10, and the settings at which systemd finds fault."""
    with tempfile.TemporaryDirectory() as folder:
        said = analyze("security", "--offline=true", "--no-pager", str(installed(Path(folder), unit, *drop_ins)))
    (level,) = re.findall(r"Overall exposure level for .*: ([0-9.]+)", said)
    return float(level), set(re.findall(r"^✗ (\S+)", said, re.MULTILINE))


def allowed_calls(unit: Unit) -> set[str]:
    """The system calls of SystemCallFilter=, with the groups that systemd-analyze knows."""
    allowed = _members(["@default"])
    for value in unit["SystemCallFilter"]:
        named = _members(value.removeprefix("~").split())
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def _members(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        found |= _members(_groups()[name]) if name.startswith("@") else {name}
    return found


@cache
def _groups() -> Mapping[str, list[str]]:
    """Every group of system calls that systemd knows, and what it names: calls and other groups."""
    groups: dict[str, list[str]] = {}
    for line in analyze("syscall-filter").splitlines():
        if line.startswith("@"):
            members = groups[line] = []
        elif line.startswith(" ") and "#" not in line:
            members.append(line.strip())
    return groups


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


class _Filter:
    """A filter of system calls by libseccomp, which systemd itself uses; OSError where it is not installed."""

    def __init__(self, otherwise: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint(otherwise)))

    def add(self, action: int, call: str, *where: _Comparison) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # a call of another architecture
            return
        compared = (_Comparison * len(where))(*where)
        arguments = (ctypes.c_uint(action), ctypes.c_int(number), ctypes.c_uint(len(where)), compared)
        _check(self._library.seccomp_rule_add_array(self._context, *arguments))

    def load(self) -> None:
        _check(self._library.seccomp_load(self._context))


def _check(code: int) -> None:
    if code < 0:
        raise OSError(-code, os.strerror(-code))


def confine(unit: Unit) -> None:
    """Put this process and its children under the unit's filters, for good."""
    allowed = _Filter(_EPERM)
    for call in allowed_calls(unit):
        allowed.add(_ALLOW, call)
    refused = _Filter(_ALLOW)
    if unit["MemoryDenyWriteExecute"] == ("yes",):
        for call, (argument, bits) in _WRITE_EXECUTE.items():
            refused.add(_EPERM, call, _Comparison(argument, _MASKED_EQUAL, bits, bits))
    refused.load()  # first: the other one may not allow what loads a filter
    allowed.load()


if __name__ == "__main__":
    confine(read(*map(Path, sys.argv[1].split(","))))
    os.execvp(sys.argv[3], sys.argv[3:])
