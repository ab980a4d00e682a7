"""Xen, read from its Dom0: domains by xl, the scheduler's times by xentrace, devices by Dom0's files.

Only the trace modes are defined here, so that a host without Xen loads nothing else.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["runstate", "full", "off"]
MODES: tuple[Mode, ...] = ("runstate", "full", "off")
DEFAULT_MODE: Mode = "runstate"
