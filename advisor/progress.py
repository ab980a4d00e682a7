"""How far a long piece of work is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
