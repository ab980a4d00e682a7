"""Names lead to one place: a class name occurs once, and what programs inside strings import is there."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("profiler", "lab", "models", "advisor", "research", "api")
IMPORT = re.compile(rf"^\s*from ((?:{'|'.join(PACKAGES)})[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path, tree in sources(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def imported_in_strings() -> Iterator[tuple[str, str, str]]:
    """File, module and name of what a program in a string constant imports."""
    for path, tree in sources(*PACKAGES, "tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for module, names in IMPORT.findall(node.value):
                    for name in names.split(","):
                        yield str(path), module, name.split(" as ")[0].strip()


@pytest.mark.parametrize(("path", "module", "name"), sorted(set(imported_in_strings())))
def test_what_a_program_in_a_string_imports_is_there(path: str, module: str, name: str) -> None:
    found = importlib.import_module(module)
    if not hasattr(found, name):
        importlib.import_module(f"{module}.{name}")
