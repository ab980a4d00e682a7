"""Reads the fields of a campaign file so that every error names the place and what is expected there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from typing import Any, NoReturn, TypeVar

from lab.errors import CampaignError

Choice = TypeVar("Choice", bound=str)


class Fields:
    """A mapping of the file at a place such as `workloads.web-1k`; `done` refuses fields that were not read."""

    def __init__(self, file: str, place: str, value: Any) -> None:
        self.file = file
        self.place = place
        if not isinstance(value, dict):
            self.wrong(place, "must be a mapping of names to values")
        self._values: dict[str, Any] = {str(key): entry for key, entry in value.items()}
        self._read: set[str] = set()

    def wrong(self, place: str, reason: str) -> NoReturn:
        """Raise the error for a place in the file."""
        raise CampaignError(f"{self.file}: {place or 'the whole file'} {reason}")

    def at(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def has(self, name: str) -> bool:
        self._read.add(name)
        return self._values.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        """The value as YAML gave it; the default where it is absent or null."""
        self._read.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw(name, default)
        if not isinstance(value, (str, int, float)) or isinstance(value, bool) or str(value) == "":
            self.wrong(self.at(name), "must be a text" if value is not None else "is missing")
        return str(value)

    def number(
        self, name: str, default: float | None = None, *, above: float = 0.0, least: float | None = None,
        most: float = 1e9,
    ) -> float:  # fmt: skip
        """The value, which must be at least `least`, or where that is None, above `above`."""
        value = self.raw(name, default)
        if value is None:
            self.wrong(self.at(name), "is missing")
        number = math.nan
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # more digits than a float holds
                number = float(value)
        if not math.isfinite(number):
            self.wrong(self.at(name), f"must be a number, not {str(value)[:40]!r}")
        if not (above < number if least is None else least <= number) or number > most:
            low = f"above {above:g}" if least is None else f"at least {least:g}"
            self.wrong(self.at(name), f"must be {low} and at most {most:,.10g}, not {number:,.10g}")
        return number

    def whole(self, name: str, default: int | None = None, *, least: int = 1, most: int = 1_000_000) -> int:
        value = self.number(name, default, least=least, most=most)
        if value != int(value):
            self.wrong(self.at(name), f"must be a whole number, not {value:g}")
        return int(value)

    def optional(self, name: str, *, most: float = 1e9) -> float | None:
        return self.number(name, most=most) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name, default)
        if not isinstance(value, bool):
            self.wrong(self.at(name), f"must be true or false, not {str(value)[:40]!r}")
        return value

    def choice(self, name: str, choices: Collection[Choice], default: Choice | None = None) -> Choice:
        """One of these words; YAML reads `on` and `off` as truth values."""
        value = self.raw(name, default)
        word = {True: "on", False: "off"}[value] if isinstance(value, bool) else self.text(name, default)
        by_word = {str(choice): choice for choice in choices}
        if word not in by_word:
            self.wrong(self.at(name), f"must be one of {', '.join(choices)}, not {word[:40]!r}")
        return by_word[word]

    def sequence(self, name: str, default: list[Any] | None = None) -> list[Any]:
        value = self.raw(name, default)
        if not isinstance(value, list) or not value:
            self.wrong(self.at(name), "must be a list with at least one entry")
        return list(value)

    def fields(self, name: str) -> Fields:
        return Fields(self.file, self.at(name), self.raw(name, {}))

    def entries(self) -> Iterator[tuple[str, Any]]:
        """All names with their values, for mappings whose names are free."""
        self._read.update(self._values)
        return iter(self._values.items())

    def done(self) -> None:
        """Refuse fields that were not read: a misspelt name would be ignored silently."""
        unknown = sorted(set(self._values) - self._read)
        if unknown:
            known = ", ".join(sorted(self._read)) or "nothing"
            self.wrong(self.at(unknown[0]), f"is not known here (known: {known})")
