"""What programs inside strings import is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("profiler", "lab", "models", "advisor", "research", "api")
IMPORT = re.compile(rf"^\s*from ((?:{'|'.join(PACKAGES)})[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def sources(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def imported_in_strings() -> Iterator[tuple[str, str, str]]:
    """File, module and name of what a program in a string constant imports."""
    for path, _ in sources(*PACKAGES, "tests"):
        for constant in strings(compiled(path)):
            for module, names in IMPORT.findall(constant):
                for name in names.split(","):
                    yield str(path), module, name.split(" as ")[0].strip()


def compiled(path: Path) -> CodeType:
    """The code of a file, out of Python's cache where that has it."""
    code = SourceFileLoader(path.stem, str(ROOT / path)).get_code(path.stem)
    assert code is not None
    return code


def strings(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from strings(constant)
        for part in constant if isinstance(constant, tuple) else (constant,):
            if isinstance(part, str):
                yield part


def test_what_a_program_in_a_string_imports_is_there() -> None:
    wanted = set(imported_in_strings())
    assert len(wanted) > 10
    assert sorted(one for one in wanted if not is_there(*one[1:])) == []


def is_there(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False
