"""Argument types of probes' options: numbers within a range, with one-sentence errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def count(most: int, least: int = 1) -> Callable[[str], int]:
    """A whole number from `least` to `most`; `_` and `,` may group its digits."""

    def read(text: str) -> int:
        digits = text.replace("_", "").replace(",", "")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 15 or not least <= int(digits) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
        return int(digits)

    return read


def above(lowest: float, most: float) -> Callable[[str], float]:
    """A number above `lowest`, up to `most`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not lowest < value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above {lowest:g}, up to {most:g}")
        return value

    return read
