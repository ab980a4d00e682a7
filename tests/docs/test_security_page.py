"""SECURITY.md speaks of this version and of the scopes that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from advisor.domain import TOKEN_SCOPES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_newest_version_is_the_supported_one() -> None:
    (supported,) = re.findall(r"^\| (\d+\.\d+), .* \| yes \|$", PAGE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"].startswith(f"{supported}.")


def test_every_scope_and_where_it_leads_is_named() -> None:
    for scope in TOKEN_SCOPES:
        assert re.search(rf"`{scope}`|holder of a {scope} token", PAGE), scope
