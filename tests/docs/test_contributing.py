"""CONTRIBUTING names files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = ("var/",)  # by programs


def test_each_path_that_begins_with_a_folder_of_the_tree_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    paths = {path for path in re.findall(r"`([a-z_]+/[\w/.-]*)`", text) if path.split("/")[0] in folders}
    assert len(paths) > 60
    assert sorted(path for path in paths if not path.startswith(MADE) and not (ROOT / path).exists()) == []
