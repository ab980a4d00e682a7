"""The test files that a change can break: those that import what changed, directly or not.

`python -m tests.affected [BASE]` prints them for what differs from BASE (main) here; `make test-changed` runs them. Who
starts a program imports nothing of it: what only those tests see, `make test` says.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
INTEGRATIONS = sorted(path for path in ROOT.glob("integrations/*/cotenant_*") if (path / "__init__.py").exists())
ROOTS = ("advisor", "api", "models", "profiler", "lab", "research", "cotenant_client", "tests")
ALWAYS = ("tests/docs", "tests/test_names.py", "tests/test_words_in_code.py")  # they read all sources and documents


def changed(base: str) -> list[Path]:
    """Files that differ from where this branch left `base`, also those that git does not know yet."""
    commands = (["diff", "--name-only", "--merge-base", base], ["ls-files", "--others", "--exclude-standard"])
    said = [subprocess.run(["git", *one], cwd=ROOT, capture_output=True, text=True, check=True) for one in commands]
    return [Path(line) for one in said for line in one.stdout.splitlines()]


def affected(files: Iterable[Path]) -> list[str]:
    """Paths of test files and folders for changed files, which are relative to the repository."""
    files = list(files)
    if Path("conftest.py") in files or Path("pyproject.toml") in files:
        return ["tests", "integrations"]
    for package in INTEGRATIONS:
        sys.path.insert(0, str(package.parent))
    graph = grimp.build_graph(*ROOTS, *(package.name for package in INTEGRATIONS), cache_dir=None)
    there = {module for file in files for module in _modules_of(file)}
    reached = there.union(*(graph.find_downstream_modules(module) for module in there & graph.modules))
    found = {path for module in reached for path in _tests_of(module)}
    found |= {path for package in INTEGRATIONS for path in package.rglob("test_*.py") if _imported_by(path) & reached}
    return sorted({*ALWAYS, *(path.relative_to(ROOT).as_posix() for path in found)})


def _modules_of(file: Path) -> Iterator[str]:
    """A module; of what is none, such as a page or a table, those of the nearest folder that has some."""
    if file.suffix == ".py":
        yield _name(file)
        return
    folder = next((one for one in file.parents if any((ROOT / one).glob("*.py"))), None)
    if folder not in {None, Path()}:
        yield from (_name(one.relative_to(ROOT)) for one in (ROOT / str(folder)).glob("*.py"))


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    if parts[0] == "integrations":
        parts = parts[2:]
    return ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)


def _imported_by(file: Path) -> set[str]:
    """Modules that a test of an integration imports: its folder is no package that grimp reads."""
    found = re.findall(r"^ *(?:from ([\w.]+) )?import ([\w., ]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    names = {(module, name.split(" as ")[0].strip()) for module, names in found for name in names.split(",")}
    return {module for module, _ in names} | {f"{module}.{name}".strip(".") for module, name in names}


def _tests_of(module: str) -> Iterator[Path]:
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if file.name == "conftest.py":
        yield from file.parent.rglob("test_*.py")
    elif file.name.startswith("test_") and file.exists():
        yield file


if __name__ == "__main__":
    print(*affected(changed((sys.argv[1:] or ["main"])[0])), sep="\n")
