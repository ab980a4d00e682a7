"""What is locked for the service: all that it requires, and nothing else."""

from __future__ import annotations

import pytest

from tests.packaging.programs import ROOT, load

lock = load("lock_service")
FILES = lock.files()
TOOLS = ("pytest", "mypy", "ruff", "playwright", "numba")  # of developers


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_as_the_lock_and_the_requirements_are(name: str) -> None:
    text = (ROOT / "packaging" / "locked" / name).read_text(encoding="utf-8")
    assert text == FILES[name], "write it anew: python packaging/lock_service.py"


def test_no_tool_of_developers_is_among_them() -> None:
    text = "".join(FILES.values())
    assert [tool for tool in TOOLS if f"\n{tool}==" in text] == []


def test_each_extra_adds_what_it_is_named_for() -> None:
    for name, library in (("openstack", "openstacksdk"), ("plots", "matplotlib"), ("postgresql", "psycopg-binary"),
                          ("traces", "pyarrow"), ("train", "lightgbm"), ("xapi", "defusedxml")):  # fmt: skip
        assert f"\n{library}==" in FILES[f"{name}.txt"]
        assert f"\n{library}==" not in FILES["service.txt"]
