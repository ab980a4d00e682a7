"""Names from outside are shown letter by letter: none is read as markup of rich, and none becomes an emoji."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table

from lab.progress import CampaignProgress
from profiler import rich_console

FOREIGN = "same:a:a [bold]b[/] [/c] :smile:"
PRODUCT = Path(rich_console.__file__).parents[1]
CONSOLE_MODULE = Path(rich_console.__file__)
PASSIVE = {  # what shows text as its console says
    "Table", "Text", "SIMPLE_HEAD", "Progress", "BarColumn", "MofNCompleteColumn", "TaskProgressColumn",
    "TimeElapsedColumn",
}  # fmt: skip


def test_text_titles_heads_cells_and_captions_are_taken_literally() -> None:
    out = io.StringIO()
    table = Table(title=FOREIGN, caption=FOREIGN)
    table.add_column(FOREIGN)
    table.add_row(FOREIGN)
    console = rich_console.console(out, width=100)
    console.print(table)
    console.print(FOREIGN)
    assert out.getvalue().count(FOREIGN) == 5


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_of_a_campaign_takes_names_literally(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value) if terminal else monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    with CampaignProgress(1, 0, 1.0, out) as progress:
        progress.expect(0, why=f", because of why {FOREIGN}")
        progress.begin(f"begun {FOREIGN}", 1)
        progress.say(f"said {FOREIGN}")
        progress.step(f"done {FOREIGN}", 1, 1.0, f"result {FOREIGN}")
    shown = ["said", "begun", "why"] if terminal else ["said", "done", "result", "why"]
    assert [word for word in shown if f"{word} {FOREIGN}" not in out.getvalue()] == []


def test_consoles_and_columns_of_text_are_made_in_one_place() -> None:
    """Whoever needs more of rich adds it to the one module, where rich takes text literally."""
    files = [path for folder in ("api", "advisor", "models", "profiler") for path in (PRODUCT / folder).rglob("*.py")]
    assert len(files) > 300
    found = [f"{path.relative_to(PRODUCT)}: {use}" for path in files if path != CONSOLE_MODULE for use in _uses(path)]
    assert found == []


def _uses(path: Path) -> Iterator[str]:
    """Names of rich that are imported for more than annotations, and bars without a console of ours."""
    text = path.read_text()
    if "rich" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "rich")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
            yield from (name.name for name in node.names if name.name not in {*PASSIVE, "Console"})
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            given = {keyword.arg for keyword in node.keywords}
            if called in ("Console", "from_markup") or (called == "Progress" and "console" not in given):
                yield f"{called}(), line {node.lineno}"
            if called == "Typer" and "rich_markup_mode" not in given:
                yield f"Typer() with markup, line {node.lineno}"
            yield from (f"{name}=" for name in ("markup", "emoji") if name in given)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import rich", "rich"),
        ("from rich import print", "print"),
        ("from rich.panel import Panel", "Panel"),
        ("from rich.progress import TextColumn", "TextColumn"),
        ("from rich.console import Console\nConsole()", "Console(), line 2"),
        ("from rich.text import Text\nText.from_markup('')", "from_markup(), line 2"),
        ("from rich.progress import Progress\nProgress()", "Progress(), line 2"),
        ("x.print('', markup=True)  # rich", "markup="),
        ("Typer()  # rich", "Typer() with markup, line 1"),
    ],
)
def test_a_new_place_is_found(tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "new.py").write_text(line)
    assert list(_uses(tmp_path / "new.py")) == [what]
