"""Validation of input from outside, field by field with bounds, and of files that are written."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from advisor.domain import Host, Instance, Pinning, WorkloadProfile, fields_of, listed
from advisor.errors import InvalidInput, NotFound, OutOfSpace
from advisor.plug_ins import require
from profiler.files import replace_whole
from profiler.observed import format_cpus

MAX_WHOLE = 2**31 - 1  # what an integer column holds on every database
MOST_SHOWN = 255  # characters of a name
MAX_NAME = 255  # characters of a workload's
MAX_NUMBER = 1e15  # beyond anything measured; keeps sums finite


def check_value(value: Any, path: str = "") -> None:
    """Refuse numbers that are not finite, negative or absurd and text that no database stores; InvalidInput says where.

    Walks dataclasses, mappings and sequences.
    """
    if not _is_fine(value):  # an inventory has millions of values: where each stands is said of the wrong one alone
        _check_each(value, path)


def _is_fine(value: Any) -> bool:
    """Whether nothing in it is refused; False also where `_check_each` has to look."""
    kind = type(value)
    if kind is str:
        return is_storable(value)
    if kind is float or kind is int:
        return bool(0 <= value <= (MAX_NUMBER if kind is float else MAX_WHOLE))
    if value is None or kind is bool:
        return True
    if kind is tuple or kind is list:
        return all(map(_is_fine, value))
    if kind is dict or kind is MappingProxyType:
        return all(map(_is_fine, value)) and all(map(_is_fine, value.values()))
    names = _fields_of(cast(Hashable, kind))
    return names is not None and all(_is_fine(getattr(value, name)) for name in names)


@cache
def _fields_of(kind: Any) -> tuple[str, ...] | None:
    """None = it is no dataclass."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _check_each(value: Any, path: str) -> None:
    if is_dataclass(value):
        for field in fields(value):
            _check_each(getattr(value, field.name), _join(path, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_each(key, path)
            _check_each(item, _join(path, str(key)))
    elif isinstance(value, tuple | list):
        for position, item in enumerate(value):
            _check_each(item, f"{path}[{position}]")
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float | int) and not isinstance(value, bool):
        _check_number(value, path)


def check_declared(question: Any, path: str = "") -> None:
    """Refuse what is outside the limits that a question's fields declare; InvalidInput names the field."""
    for name, field in fields_of(type(question)).items():
        value, where = getattr(question, name), _join(path, name)
        if value is None and field.optional:
            continue
        low, high = field.declared.low, field.declared.high
        if field.parts:
            check_declared(value, where)
        elif field.choices:
            check_one_of(where, value, field.choices)
        elif field.lists:
            if low is not None and len(value) < low:
                raise InvalidInput(f"{where} names nothing; leave it out for {field.declared.unset}", field=where)
        elif isinstance(value, str):
            if not 1 <= len(value) <= field.declared.longest:
                raise InvalidInput(f"{where} has not 1-{field.declared.longest} characters", field=where)
        elif low is not None and high is not None and not low <= value <= high:
            raise InvalidInput(f"{where} {value:g} is outside {low:g}-{high:.15g}", field=where)


def check_kinds(question: Any, *kinds: str) -> None:
    """Refuse a field that goes with other kinds than these, and one that these need and that is not given."""
    for name, field in fields_of(type(question)).items():
        declared = field.declared
        is_given, matters = getattr(question, name) != field.default, field.matters_for(*kinds)
        if declared.only and is_given and not matters:
            message = f"{name} is only allowed for {', '.join(declared.kinds)}, not for {kinds[0]}"
            raise InvalidInput(message, field=name)
        if not is_given and not set(declared.needed_for).isdisjoint(kinds):
            raise InvalidInput(f"{kinds[0]} needs {name}: {declared.text.partition(';')[0]}", field=name)


def check_name(workload: WorkloadProfile) -> None:
    """Names of workloads come from datasets as well, so they may hold blanks; nothing that breaks a line or a path."""
    if len(workload.platform) > MAX_NAME:
        message = f"the platform of workload {workload.name[:60]!r} has more than {MAX_NAME} characters"
        raise InvalidInput(message, field="platform")
    if not 1 <= len(workload.name) <= MAX_NAME or not workload.name.isprintable():
        message = f"workload {workload.name[:60]!r} is not named with 1-{MAX_NAME} printable characters"
        raise InvalidInput(message, field="name")
    if "/" in workload.name or workload.name in {".", ".."}:
        message = f"workload {workload.name[:60]!r} holds a / or is . or .., so that no path could name it"
        raise InvalidInput(message, field="name")


def load_json(text: bytes) -> Any:
    """JSON in UTF-8 as Python values.

    ValueError for what is none, for other encodings (Python's reader guesses UTF-16 and UTF-32, which a proxy before us
    would read otherwise) and, as DuplicateKey, where an object has a key twice: readers differ on which one counts.
    RecursionError where it is nested too deeply.
    """
    return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_object)  # RFC 8259, 8.1: a mark may be ignored


class DuplicateKey(ValueError):  # noqa: N818
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:60]!a} stands twice in one object")
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise DuplicateKey(next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1))
    return mapping


def check_unique(names: Iterable[object], what: str, field: str | None = None) -> None:
    """Refuse a name that stands twice; `field` None = it is called as `what` is."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{what} {twice[0]} stands twice", field=field or what)


def check_one_of(field: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known ones."""
    if value not in known:
        raise InvalidInput(f"{field} {value[:60]!r} is none of {', '.join(known)}", field=field)


def the_one(ids: Sequence[str], what: str, name: str, field: str | None = None) -> str:
    """The id that goes by a name; NotFound where there is none, InvalidInput with the ids where there are several."""
    if not ids:
        raise NotFound(f"there is no {what} {name[:MOST_SHOWN]}")
    if len(ids) > 1:
        message = f"{len(ids)} {what}s have the name {name[:MOST_SHOWN]}: {listed(ids)}; give the id of one"
        raise InvalidInput(message, field=field or what)
    return ids[0]


def picture_kind(path: Path) -> Literal["png", "svg"]:
    """What a picture's ending says it is to be; InvalidInput for one that is not drawn, and without matplotlib."""
    require("plots", "a picture")
    match path.suffix.lower():
        case ".png":
            return "png"
        case ".svg":
            return "svg"
    raise InvalidInput(f"the picture {path} is to be a .png or an .svg file", field="picture")


def check_writable(path: Path, what: str) -> None:
    """Refuse a file that cannot be written, before the work for it is done; InvalidInput says why."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInput(f"the {what} cannot be written: folder {folder} does not exist", field=what)
    if path.exists() and not path.is_file():
        raise InvalidInput(
            f"the {what} cannot be written to {path}: it is not a regular file; name another", field=what
        )
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"the {what} cannot be written to {path}: folder {folder} is not writable", field=what)


def misfit(host: Host, instances: Iterable[Instance]) -> str | None:
    """Why an instance cannot be on this host as it is pinned, None when all can."""
    for instance in instances:
        pinning = instance.settings.pinning
        if pinning is None:
            continue
        absent = host.lacks(pinning.named)
        if absent:
            return (
                f"instance {instance.id} is pinned to pCPU {format_cpus(absent)}, host {host.id} has {host.shown_cpus}"
            )
        if len(pinning.cpus) > instance.vcpus:
            return f"instance {instance.id} has {instance.vcpus} vCPUs, its pinning names {len(pinning.cpus)}"
    return None


def fitted(host: Host, instance: Instance) -> tuple[Instance, str | None]:
    """The instance with the part of its pins that this host can hold it by, and a sentence where that is not all.

    As the kernel takes an affinity, CPUs that are absent are left out; a vCPU that none is left for ends the pins.
    """
    problem = misfit(host, [instance])
    if problem is None or instance.settings.pinning is None:
        return instance, None
    wanted = instance.settings.pinning.cpus[: instance.vcpus]
    left = tuple(tuple(cpu for cpu in cpus if not host.lacks((cpu,))) for cpus in wanted)
    holds = all(kept or not cpus for kept, cpus in zip(left, wanted, strict=True))
    pinning = Pinning(left) if holds and any(left) else None
    outcome = f"its pins count as {pinning}" if pinning else "it counts as not pinned"
    return replace(instance, settings=replace(instance.settings, pinning=pinning)), f"{problem}; {outcome}"


def is_storable(text: str) -> bool:
    """Whether a database takes it: JSON can spell half a character, and NUL, which PostgreSQL does not take."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text))


def _check_text(text: str, path: str) -> None:
    if not is_storable(text):
        raise InvalidInput(f"{path or 'text'} holds a character that cannot be stored", field=path or None)


def _check_number(number: float, path: str) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidInput(f"{path} is {number}, not a finite number", field=path)
    if number < 0:
        raise InvalidInput(f"{path} is {number}, below 0", field=path)
    if number > (MAX_NUMBER if isinstance(number, float) else MAX_WHOLE):
        raise InvalidInput(f"{path} is {number:.3g}, absurdly large", field=path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# Files for the user, written whole or not at all; what is in them is made elsewhere.


def write_whole(path: Path, content: bytes, what: str, *, check: Callable[[Path], None] = lambda _path: None) -> None:
    """Write `path`, a `what` such as "report"; a file that is there is replaced when the new one is complete.

    `check` may refuse the complete file before it takes its place. A link stays one: the file that it leads to is
    written. OutOfSpace when the disk is full, InvalidInput when `path` cannot be written or is no regular file.
    """
    target = path.resolve()
    check_writable(path, what)
    partial = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.partial")
    try:
        try:
            partial.write_bytes(content)
            check(partial)
            replace_whole(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(f"no space left for the {what} {path}: free some and try again", field=what) from error
        raise InvalidInput(f"the {what} cannot be written to {path}: {error.strerror or error}", field=what) from error
