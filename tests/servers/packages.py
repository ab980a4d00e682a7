"""Packages that are installed beside the service for a test."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, offered: Mapping[str, str]) -> None:
    """Put the package `cotenant_example` with this source on the path; by group, the lines of its entry points."""
    (folder / "cotenant_example.py").write_text(source, encoding="utf-8")
    about = folder / "cotenant_example-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cotenant-example\nVersion: 1.0\n", encoding="utf-8")
    groups = "\n".join(f"[{group}]\n{lines}\n" for group, lines in offered.items())
    (about / "entry_points.txt").write_text(groups, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "cotenant_example", raising=False)
