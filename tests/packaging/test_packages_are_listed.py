"""Each package in integrations/ that adds to the service stands in all lists of pyproject.toml that it needs."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.programs import ROOT, load

PACKAGES = [Path(part).name for part in load("release").PARTS if part.startswith("integrations/")]


def lists_without(project: dict[str, Any], package: str) -> list[str]:
    """The lists that lack a package, by their names in pyproject.toml."""
    extras, mypy = project["project"]["optional-dependencies"], project["tool"]["mypy"]
    linter = project["tool"]["importlinter"]
    contracts = linter["contracts"]
    module = f"cotenant_{package}"
    (layers,) = (one["layers"] for one in contracts if "layers" in one)
    (circles,) = (one["ancestors"] for one in contracts if "ancestors" in one)
    (seen,) = (
        one["allowed_importers"] for one in contracts if "advisor.inventories" in one.get("protected_modules", ())
    )
    every: dict[str, tuple[str, Collection[str]]] = {
        "project.optional-dependencies": (package, extras),
        "the extra all": (package, extras["all"][0].removeprefix("cotenant[").removesuffix("]").split(",")),
        "tool.mypy.packages": (module, mypy["packages"]),
        "tool.mypy.mypy_path": (f"integrations/{package}", mypy["mypy_path"]),
        "tool.importlinter.root_packages": (module, linter["root_packages"]),
        "layers of One direction": (module, layers[0].split(" | ")),
        "ancestors of No circles": (module, circles),
        "allowed_importers of Packages of other systems": (module, seen),
    }
    return [name for name, (wanted, among) in every.items() if wanted not in among]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_stands_in_all_lists_of_pyproject(project: dict[str, Any], package: str) -> None:
    assert lists_without(project, package) == [], "pyproject.toml: add the package to these lists"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_row_in_the_list_of_packages(package: str) -> None:
    rows = (ROOT / "integrations" / "README.md").read_text(encoding="utf-8")
    assert f"({package}/README.md)" in rows


def test_a_package_that_no_list_has_lacks_all_eight(project: dict[str, Any]) -> None:
    assert len(lists_without(project, "elsewhere")) == 8
