"""Shared by all parsers: ParseError and strict reading of numbers. No I/O."""

from __future__ import annotations

import re

COUNT_DIGITS = 20  # of the largest 64-bit counter
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?\Z")
_SHOWN = 60  # characters of the offending text that an error repeats


class ParseError(ValueError):
    """Text of a kernel file or a tool is not what its format says; carries what was read, where, and why it fails."""

    def __init__(self, what: str, where: str, line: int, reason: str) -> None:
        super().__init__(f"{where or what}, line {line}: {reason}")
        self.what = what
        self.where = where
        self.line = line
        self.reason = reason


def count(text: str, what: str, where: str, line: int = 1) -> int:
    """Read a counter: ASCII digits only, no sign; int() would also take "1_0" and "٣"."""
    stripped = text.strip(" \t\n")
    if stripped.isdigit() and stripped.isascii() and len(stripped) <= COUNT_DIGITS:  # a third of the time of a pattern
        return int(stripped)
    raise ParseError(what, where, line, f"{text[:_SHOWN]!r} is not a counter")


def decimal(text: str, what: str, where: str, line: int = 1) -> float:
    """Read a plain decimal number such as `0.28`: no sign, no exponent, no `nan`."""
    if not _DECIMAL.match(text):
        raise ParseError(what, where, line, f"{text[:_SHOWN]!r} is not a decimal number")
    return float(text)


def lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, numbered from 1; splits at newlines only, as the kernel writes them."""
    return [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
