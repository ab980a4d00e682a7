"""What a user says of an instance in texts, such as annotations: each field as its type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any


def number(text: str) -> float:
    """A finite number as text; ValueError else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value


def whole(text: str) -> int:
    """A whole number as text; ValueError else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("is not a whole number")
    return int(text)


def _workload(text: str) -> str:
    if not text or len(text) > 255 or not text.isprintable():
        raise ValueError("is not 1-255 printable characters")
    return text


def _service(text: str) -> str:
    if text not in {"latency", "throughput"}:
        raise ValueError("is neither latency nor throughput")
    return text


# By the names of an Instance's fields; each raises a ValueError that goes on after the text.
SAID: Mapping[str, Callable[[str], Any]] = {
    "workload": _workload,
    "service": _service,
    "load": number,
    "min_throughput_ratio": number,
    "max_latency_ratio": number,
    "max_time_short": number,
}
