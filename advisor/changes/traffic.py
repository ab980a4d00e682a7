"""Classes on the uplink of the machine that this process runs on: HTB's tree, classes, their leaves and filters, by tc.

What tc shows is brought to the words of tc-htb(8). The kernel counts bursts in ticks of 64 ns, tc shows those within 16
bytes of a kilobyte as such, and rates from 1 Gbit/s on without what is below 1 Mbit/s. What differs by less means the
same.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.changes.controller import ChangeFailed, Executor, ExecutorKind, Meaning, Reach
from advisor.domain import Change, Command, Host
from advisor.errors import InvalidInput

PATIENCE_S = 20.0
Run = Callable[[Sequence[str]], str]
_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}\Z")
_NAME = re.compile(r"(?:root|(?:class|leaf) 1:[0-9a-f]{1,4}|filter \d{1,5})\Z")
_TEXTS = {
    "root": re.compile(r"htb 1: default [0-9a-f]{1,4}\Z"),
    "class": re.compile(r"parent 1:[0-9a-f]{0,4}(?: (?:rate|ceil|burst|cburst|prio|quantum) \d{1,15}){2,6}\Z"),
    "leaf": re.compile(r"[0-9a-f]{1,4}: (?:fq_codel|pfifo)\Z"),
    "filter": re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5} 1:[0-9a-f]{1,4}\Z"),
}
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12, "b": 1, "kb": 1 << 10, "mb": 1 << 20}
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([A-Za-z]*)(?:/\d+)?\Z")
_CLASS = re.compile(r"class htb (\S+) (?:root|parent (\S+)) (.*)\Z")
_NUMBERS = ("rate", "ceil", "burst", "cburst", "prio", "quantum")
_PART, _BYTES = 0.001, 16  # by which shown numbers may differ


def run_tc(argv: Sequence[str]) -> str:
    """What tc prints; ChangeFailed with its own words."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "")},
        )  # fmt: skip
    except FileNotFoundError:
        raise ChangeFailed("there is no tc on this machine: install iproute2") from None
    except subprocess.TimeoutExpired:
        raise ChangeFailed(f"tc did not answer within {PATIENCE_S:.0f} s") from None
    if done.returncode != 0:
        raise ChangeFailed(f"tc: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


class Traffic:
    """The uplinks of the hosts in `here`, which are this machine."""

    def __init__(self, here: frozenset[str], run: Run = run_tc) -> None:
        self._here = here
        self._run = run

    def meaning(self, host: Host, command: Command) -> Meaning:
        self._check_here(host.id)
        device, name, after = _parsed(command.argv)
        same_device, same_name, before = _parsed(command.undo)
        if (device, name) != (same_device, same_name):
            raise InvalidInput(f"{' '.join(command.argv)[:200]} sets something else than its undo", field="command")
        return Meaning("tc", device, {name: before}, {name: after})

    def read(self, change: Change) -> Mapping[str, str]:
        self._check_here(change.host)
        return {name: self._text(_device(change), _checked(name)) for name in change.after}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        self._check_here(change.host)
        device = _device(change)
        for name, given in values.items():
            # What was read of a class is rounded: where it is what was planned for, that is written.
            planned = change.before.get(name, "")
            text = planned if given and planned and self.same(name, given, planned) else given
            what, _, number = _checked(name).partition(" ")
            if text and not _TEXTS[what].match(text):
                raise InvalidInput(f"{name}: {text[:80]!r} is no text for tc", field="command")
            now = self._text(device, name)
            if bool(now) == bool(text) and (what != "class" or not text):
                if not self.same(name, now, text):
                    raise ChangeFailed(f"{name} of {device} is {now}: another program set it")
                continue
            self._run(["tc", *_words(what, number, device, text, now)])

    def same(self, setting: str, one: str, other: str) -> bool:
        if not setting.startswith("class") or not one or not other:
            return one == other
        first, second = _numbers(one), _numbers(other)
        names = first.keys() & second.keys()
        return {"parent", "rate", "ceil"} <= names and all(_alike(name, first[name], second[name]) for name in names)

    def _text(self, device: str, name: str) -> str:
        what, _, number = name.partition(" ")
        match what:
            case "class":
                return self._class(device, number)
            case "filter":
                return self._filter(device, int(number))
        for qdisc in self._shown(["qdisc", "show", "dev", device]):
            handle, kind = str(qdisc.get("handle")), str(qdisc.get("kind"))
            if what == "leaf" and qdisc.get("parent") == number:
                return f"{handle} {kind}"
            if what == "root" and qdisc.get("root") and handle != "0:":  # 0: is what the kernel puts there by itself
                default = str((qdisc.get("options") or {}).get("default", "")).removeprefix("0x")
                return f"{kind} {handle} default {default}" if kind == "htb" else f"{kind} {handle}"
        return ""

    def _class(self, device: str, number: str) -> str:
        """tc 6.1 shows HTB's classes as text, whatever is asked for."""
        for line in self._run(["tc", "-d", "class", "show", "dev", device]).splitlines():
            found = _CLASS.match(line.strip())
            if found and found[1] == number:
                words = found[3].split()
                named = {name: words[at + 1] for at, name in enumerate(words[:-1]) if name in _NUMBERS}
                texts = (f"{name} {_amount(named[name])}" for name in _NUMBERS if name in named)
                return " ".join([f"parent {found[2] or '1:'}", *texts])
        return ""

    def _filter(self, device: str, pref: int) -> str:
        for row in self._shown(["filter", "show", "dev", device]):
            options = row.get("options") or {}
            if row.get("pref") == pref and options.get("flowid"):
                at = {int(match["off"]): str(match["value"]) for match in options.get("match", [])}
                address = f"{at.get(-8, '')}{at.get(-4, '')[:4]}"
                octets = ":".join(address[index : index + 2] for index in range(0, len(address), 2))
                return f"{octets} {options['flowid']}"
        return ""

    def _shown(self, words: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        text = self._run(["tc", "-j", *words])
        try:
            rows = json.loads(text or "[]", object_pairs_hook=_several)
        except (ValueError, RecursionError):
            raise ChangeFailed(f"tc -j {' '.join(words)} prints no JSON") from None
        return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []

    def _check_here(self, host: str) -> None:
        if host not in self._here:
            message = f"interfaces of {host} are changed on {host} itself: run the command there, with --here {host}"
            raise InvalidInput(message, field="host")


def _words(what: str, number: str, device: str, text: str, now: str) -> list[str]:
    """Arguments of tc that bring `now` to `text`, either of which may be nothing."""
    verb = "del" if not text else "change" if now else "add"
    match what:
        case "root":
            kind, handle, *rest = (text or now).split()
            return ["qdisc", verb, "dev", device, "root", "handle", handle, kind, *(rest if text else [])]
        case "leaf":
            handle, kind = (text or now).split()
            return ["qdisc", verb, "dev", device, "parent", number, "handle", handle, kind]
        case "filter":
            start = ["filter", verb, "dev", device, "parent", "1:", "protocol", "all", "pref", number]
            if not text:
                return start
            address, flow = text.split()
            return [*start, "u32", "match", "ether", "src", address, "flowid", flow]
    numbers = _numbers(text or now)
    start = ["class", verb, "dev", device, "parent", str(numbers["parent"]), "classid", f"{number}"]
    if not text:
        return start
    units = {"rate": "bit", "ceil": "bit", "burst": "b", "cburst": "b"}
    named = [(name, f"{numbers[name]}{units.get(name, '')}") for name in _NUMBERS if name in numbers]
    return [*start, "htb", *(word for pair in named for word in pair)]


def _parsed(argv: tuple[str, ...]) -> tuple[str, str, str]:
    """Device, setting and text of a tc command as `advisor.render.tc` writes it; an empty text takes it away."""
    refusal = InvalidInput(f"{' '.join(argv)[:200]!r} is no tc command as Cotenant renders it", field="command")
    if len(argv) < 6 or argv[0] != "tc" or argv[2] not in ("add", "del", "change") or argv[3] != "dev":
        raise refusal
    words = list(argv[5:])
    options = {word: words[at + 1] for at, word in enumerate(words[:-1])}
    removed = argv[2] == "del"
    if argv[1] == "qdisc" and words[0] == "root":
        name, text = "root", f"htb {options['handle']} default {options.get('default', '')}"
    elif argv[1] == "qdisc":
        name, text = f"leaf {options.get('parent')}", f"{options.get('handle')} {words[-1]}"
    elif argv[1] == "filter":
        name, text = f"filter {options.get('pref')}", f"{options.get('src')} {options.get('flowid')}"
    else:
        name = f"class {options.get('classid')}"
        named = (f"{one} {_amount(options[one])}" for one in _NUMBERS if one in options)
        text = " ".join([f"parent {options.get('parent')}", *named])
    text = "" if removed else text
    if not _NAME.match(name) or (text and not _TEXTS[name.partition(" ")[0]].match(text)):
        raise refusal
    return argv[4], name, text


def _amount(text: str) -> int:
    """A rate in bit/s or a size in bytes, as tc reads and shows them; ChangeFailed."""
    found = _AMOUNT.match(text)
    if found is None or found[2].lower() not in (*_UNITS, ""):
        raise ChangeFailed(f"tc shows {text[:40]!r}, which is no rate")
    return round(float(found[1]) * _UNITS.get(found[2].lower(), 1))


def _numbers(text: str) -> dict[str, str | int]:
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return {name: value if name == "parent" else int(value) for name, value in pairs}


def _alike(name: str, one: str | int, other: str | int) -> bool:
    if isinstance(one, str) or isinstance(other, str) or name == "prio":
        return one == other
    return abs(one - other) <= max(_PART * max(one, other), 0 if name in ("rate", "ceil") else _BYTES)


def _several(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of tc's, in which `match` stands once for each part of an address."""
    found: dict[str, Any] = dict(pairs)
    if "match" in found:
        found["match"] = [value for name, value in pairs if name == "match"]
    return found


def _device(change: Change) -> str:
    if not _DEVICE.match(change.target):
        raise InvalidInput(f"{change.target[:60]!r} is not an interface name", field="target")
    return change.target


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise InvalidInput(f"{name[:60]!r} is no setting of an uplink that is changed here", field="command")
    return name


def _open(reach: Reach) -> Executor:
    return Traffic(reach.here)


EXECUTOR = ExecutorKind(_open, tools=("tc",))
