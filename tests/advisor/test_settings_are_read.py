"""Each setting that an operator can give is read somewhere: an option without a reader promises what is not done."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from advisor.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def test_each_setting_is_read_outside_of_its_declaration() -> None:
    read = {
        node.attr
        for folder in ("advisor", "api")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and re.search(r"(settings|chosen)$", ast.unparse(node.value))
    }
    properties = {"state_dir": "model_dir", "prometheus_url": "only_scraped"}
    assert {name for name in Settings.model_fields if not {name, properties.get(name)} & read} == set()


def test_each_variable_that_the_documents_name_is_read_by_something() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/reference").glob("*.md"),
    ]
    named = {name for page in pages for name in re.findall(r"\bCOTENANT_[A-Z_]+\b", page.read_text(encoding="utf-8"))}
    settings = {f"COTENANT_{name.upper()}" for name in Settings.model_fields}
    folders = ("profiler", "cotenant_client", "packaging", "integrations", "examples", "tests")
    kinds = {".py", ".service", ".env", ".sh", ".yaml", ".go"}
    others = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds)
    unknown = named - settings
    for path in others:
        unknown -= {name for name in unknown if name in path.read_text(encoding="utf-8", errors="replace")}
        if not unknown:
            break
    assert unknown == set()
