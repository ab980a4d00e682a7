"""YAML files as items that know where they stand, so that every error can name file, line and field.

Built from YAML's events: no tag is resolved and no object constructed. What a scalar means is decided by the field that
it fills, so `pinning: 0:2` and `zone: no` are the texts they look like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from advisor.errors import InvalidInput

T = TypeVar("T")

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 20  # an inventory needs seven
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where PyYAML was built with it: ten times as fast
_NULLS = {"", "~", "null", "Null", "NULL"}
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}\Z")
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,5})?\Z")


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a document: a text, a sequence or a mapping, with its file, line and field (`hosts[2].pcpus`)."""

    file: str
    line: int
    path: str
    value: str | Sequence[Item] | Mapping[str, Item] = field(repr=False)
    is_quoted: bool = False

    def fail(self, reason: str) -> NoReturn:
        """Raise InvalidInput that names this item."""
        where = f"{self.file}, line {self.line}"
        sentence = f"{where}, field {self.path}: {reason}" if self.path else f"{where}: {reason}"
        raise InvalidInput(sentence, field=self.path or None)

    @property
    def is_null(self) -> bool:
        return isinstance(self.value, str) and not self.is_quoted and self.value in _NULLS

    def mapping(self, known: Sequence[str] | None = None) -> Mapping[str, Item]:
        """The fields that are filled; fails on fields outside `known`."""
        if not isinstance(self.value, Mapping):
            self.fail("must be a mapping (name: value)")
        for name, item in self.value.items():
            if known is not None and name not in known:
                item.fail(f"is not a known field; known here: {', '.join(known)}")
        return {name: item for name, item in self.value.items() if not item.is_null}

    def items(self) -> Sequence[Item]:
        """The items of a sequence."""
        if isinstance(self.value, str | Mapping):
            self.fail("must be a list")
        return self.value

    def text(self) -> str:
        """A text of printable characters; quotes are never needed."""
        if not isinstance(self.value, str):
            self.fail("must be a text")
        if not self.value.isprintable():
            self.fail("holds a line break or a control character")
        return self.value

    def choice(self, choices: Sequence[str]) -> str:
        text = self.text()
        if text not in choices:
            self.fail(f"{text[:40]!r} is none of {', '.join(filter(None, choices))}")
        return text

    def number(self, low: float = 0.0, high: float = math.inf) -> float:
        """A finite number within [low, high]."""
        text = self._plain("a number")
        if not _NUMBER.match(text):
            self.fail(f"{text[:40]!r} is not a finite number")
        number = float(text)
        if not low <= number <= high or math.isinf(number):
            self.fail(f"{text[:40]} is outside {low:g}-{high:g}")
        return number

    def whole(self, low: int = 0, high: int = 2**31 - 1) -> int:
        """A whole number within [low, high]."""
        text = self._plain("a whole number")
        if not _WHOLE.match(text):
            self.fail(f"{text[:40]!r} is not a whole number")
        if not low <= int(text) <= high:
            self.fail(f"{text[:40]} is outside {low}-{high}")
        return int(text)

    def flag(self) -> bool:
        text = self._plain("true or false")
        if text.lower() not in _FLAGS:
            self.fail(f"{text[:40]!r} is neither true nor false")
        return _FLAGS[text.lower()]

    def _plain(self, wanted: str) -> str:
        if not isinstance(self.value, str) or self.is_quoted:
            kind = "a text in quotes" if isinstance(self.value, str) else "a structure"
            self.fail(f"must be {wanted}, not {kind}")
        return self.value


def read_document(path: Path) -> Item:
    """Read one YAML (or JSON) file. InvalidInput with file and line on anything that is not one plain document.

    Refused: over 16 MiB, over 20 levels, anchors and aliases, tags, duplicate keys, several documents, not UTF-8.
    """
    text = _read_text(path)
    try:
        return _Composer(str(path), text).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = getattr(error, "position", 0)  # of a character that YAML does not allow
        line = mark.line + 1 if mark else text[: position or 0].count("\n") + 1
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        raise InvalidInput(f"{path}, line {line}: {reason}") from error


class _Composer:
    """Turns YAML's events into items, within bounds."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> Item:
        event = self._next()
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            raise InvalidInput(f"{self._file}, line 1: the file is empty")
        item = self._item(event, "", 0)
        self._next()  # the document's end
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            self._at(event, "", "").fail("holds more than one document")
        return item

    def _next(self) -> yaml.Event:
        return next(self._events)

    def _item(self, event: yaml.Event, path: str, depth: int) -> Item:
        here = self._at(event, path, "")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            here.fail("anchors and aliases are not read; write the value out")
        tag = getattr(event, "tag", None)
        if tag not in {None, "!"}:  # "!" is what the parser says of a quoted text
            here.fail(f"tag {tag[:40]!r} is not read; write the plain value")
        if depth > MAX_DEPTH:
            here.fail(f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.ScalarEvent):
            return self._at(event, path, event.value, is_quoted=bool(event.style))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._at(event, path, list(self._sequence(path, depth)))
        return self._at(event, path, self._mapping(path, depth))

    def _sequence(self, path: str, depth: int) -> Iterator[Item]:
        position = 0
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            yield self._item(event, f"{path}[{position}]", depth + 1)
            position += 1

    def _mapping(self, path: str, depth: int) -> Mapping[str, Item]:
        fields: dict[str, Item] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._item(event, path, depth + 1)
            if not isinstance(key.value, str):
                key.fail("has a structure where a field's name should be")
            name = key.text()[:60]  # in messages: a key may be megabytes long
            child = f"{path}.{name}" if path else name
            item = self._item(self._next(), child, depth + 1)
            if key.value in fields:
                self._at(event, child, "").fail("stands twice")
            fields[key.value] = replace(item, line=key.line)  # a value may begin a line below its name
        return fields

    def _at(
        self, event: yaml.Event, path: str, value: str | Sequence[Item] | Mapping[str, Item], *, is_quoted: bool = False
    ) -> Item:
        line = event.start_mark.line + 1 if event.start_mark else 1
        return Item(self._file, line, path, value, is_quoted)


def built(item: Item, make: Callable[[], T]) -> T:
    """Call `make`; what a domain type refuses becomes an error at the field that it names, or at the whole item."""
    try:
        return make()
    except (ValueError, InvalidInput) as error:
        reason = str(error)
        fields = item.value if isinstance(item.value, Mapping) else {}
        named = sorted((name for name in fields if re.search(rf"\b{re.escape(name)}\b", reason)), key=len)
        (fields[named[-1]] if named else item).fail(reason)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"{path} is larger than {MAX_BYTES // 2**20} MiB; split it")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} is a directory; name a YAML file in it") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MAX_BYTES:  # a pipe or a device has no size beforehand
        raise InvalidInput(f"{path} is larger than {MAX_BYTES // 2**20} MiB; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{path}, line {line}: is not UTF-8 text") from None
