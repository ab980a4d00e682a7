"""Through how many files and functions a command goes: what a reader of it must open.

`python -m research.benchmarks.entered_files where examples/cloud.yaml --instance examples/shop-7.yaml` runs the command
in this process and counts. What runs while a module is imported does not count, nor do comprehensions and lambdas.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from api.cli import app

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("advisor", "api", "cotenant_client", "lab", "models", "profiler")


@dataclass(slots=True)
class Entered:
    """Functions that were called, by file below the root of the source."""

    functions: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    _importing: threading.local = field(default_factory=threading.local)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function of `sys.setprofile`."""
        if event not in {"call", "return"}:
            return
        code, depth = frame.f_code, getattr(self._importing, "depth", 0)
        if code.co_name == "<module>":
            self._importing.depth = max(depth + (1 if event == "call" else -1), 0)
        elif event == "call" and not depth and code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<":
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
                name = str(path.relative_to(ROOT))
                self.functions.setdefault(name, set()).add((code.co_name, code.co_firstlineno))

    @property
    def counts(self) -> dict[str, int]:
        """Files, and functions in all of them."""
        return {"files": len(self.functions), "functions": sum(map(len, self.functions.values()))}


def entered(argv: Sequence[str]) -> Entered:
    """What a command of `cotenant` with these arguments goes through; its output is left out."""
    found = Entered()
    command = typer.main.get_command(app)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        threading.setprofile(found.profile)
        sys.setprofile(found.profile)
        try:
            command(list(argv))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return found


if __name__ == "__main__":
    made = entered(sys.argv[1:])
    for file in sorted(made.functions):
        print(file, len(made.functions[file]))
    print(json.dumps(made.counts))
