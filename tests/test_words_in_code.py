"""Sentences in code name the actor: these words hide it. Documents have a test of their own (tests/docs)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_words import FORBIDDEN

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "advisor",
    "api",
    "models",
    "profiler",
    "cotenant_client",
    "lab",
    "research",
    "integrations",
    "packaging",
    "docs",
    "tests",
)
CODE = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if "versions" not in path.parts
    and path.name not in {"test_words.py", Path(__file__).name}
    and not any(part == "build" or part.startswith((".", "var")) for part in path.relative_to(ROOT).parts)
)  # migrations name columns as they were, and the tests of words the words
DATA = sorted(
    path
    for folder in (*FOLDERS, "datasets", "examples")
    for pattern in ("*.yaml", "*.yml", "*.toml")
    for path in (ROOT / folder).rglob(pattern)
    if not any(part == "build" or part.startswith((".", "var")) for part in path.relative_to(ROOT).parts)
)
TEMPLATES = sorted(
    path for pattern in ("*.html", "*.html.j2") for folder in FOLDERS for path in (ROOT / folder).rglob(pattern)
)
_CODE_OF_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_EXPLAINED = re.compile(rf"{FORBIDDEN.pattern}|\bwants\b", re.IGNORECASE)  # instances demand, programs take or ask
_NAME = re.compile(r"`[^`]*`")
_IN_NAMES = re.compile(
    r"(?:^|_)(?:told|untold|whom|nobodys?|everybodys?|somebodys?|anybodys?|newcomers?)(?:_|$)", re.IGNORECASE
)
_QUOTED = re.compile(r'"([^"]*)"')


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True, slots=True)
class Said:
    """What a source says, each with its line: string constants of several words, docstrings and comments without the
    names of code in them, and the names that the code gives."""

    sentences: list[tuple[int, str]]
    explanations: list[tuple[int, str]]
    names: list[tuple[int, str]]


def said_by(text: str) -> Said:
    tree = ast.parse(text)
    strings: dict[int, tuple[int, str]] = {}
    docs: set[int] = set()
    explanations: list[tuple[int, str]] = []
    names: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.append((node.lineno, name))
            case ast.Constant(value=str(words)):
                strings[id(node)] = node.lineno, words
            case ast.Expr(value=ast.Constant(value=str(words)) as doc):
                docs.add(id(doc))
                explanations.append((node.lineno, _NAME.sub("", words)))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append((node.lineno, name))
    if _EXPLAINED.search(text):  # to find comments takes longest of all
        explanations += (
            (token.start[0], _NAME.sub("", token.string))
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        )
    sentences = [said for at, said in strings.items() if at not in docs and " " in said[1].strip()]
    return Said(sentences, explanations, names)


@cache
def said_in(path: Path) -> Said:
    return said_by(path.read_text(encoding="utf-8"))


def words_of_template(text: str) -> str:
    """What a reader may see of a template: its text, and what is quoted in its expressions, by line."""

    def visible(match: re.Match[str]) -> str:
        quoted = " ".join(one for one in _QUOTED.findall(match[0]) if " " in one)
        return quoted + "\n" * match[0].count("\n")

    return _CODE_OF_TEMPLATE.sub(visible, text)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_sentence_in_code_names_the_actor(folder: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {text}"
        for path in CODE
        if path.relative_to(ROOT).parts[0] == folder
        for line, text in said_in(path).sentences
        if FORBIDDEN.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_or_comment_names_the_actor(folder: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {words}"
        for path in CODE
        if path.relative_to(ROOT).parts[0] == folder
        for line, words in said_in(path).explanations
        if _EXPLAINED.search(words)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_name_in_code_is_of_the_field(folder: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {name}"
        for path in CODE
        if path.relative_to(ROOT).parts[0] == folder
        for line, name in said_in(path).names
        if _IN_NAMES.search(name)
    ]
    assert found == []


def test_the_name_of_a_test_names_the_actor() -> None:
    paths = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "integrations").rglob("test_*.py")]
    found = [
        f"{name_of(path)}: {name}"
        for path in paths
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if _IN_NAMES.search(name)
    ]
    assert len(paths) > 400
    assert found == []


def test_what_conversations_campaigns_and_charts_say_names_the_actor() -> None:
    """Names of code, such as `cotenant.nobody` of the chart, have a dot or a quote beside them."""
    assert len(DATA) > 100
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in DATA
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(line[match.start() - 1 : match.start()] not in {".", "/"} for match in FORBIDDEN.finditer(line))
    ]
    assert found == []


def test_a_page_names_the_actor() -> None:
    assert len(TEMPLATES) > 20
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in TEMPLATES
        for number, line in enumerate(words_of_template(path.read_text(encoding="utf-8")).splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_sentences_are_found_in_parts_of_formatted_strings_and_docstrings_are_left_out() -> None:
    said = said_by(
        '"""Nobody."""\nNAME = "told"\n\ndef f(x):\n    """Told to whom."""\n    return f"{x} told nobody {x}"\n'
    )
    assert said.sentences == [(6, " told nobody ")]
    assert sorted(said.names) == [(2, "NAME"), (4, "f"), (4, "x")]
    assert [bool(_IN_NAMES.search(name)) for name in ("told_at", "_of_nobody", "toldest", "newcomer", "new_vm")] == [
        True, True, False, True, False,
    ]  # fmt: skip
    code = 'def f(told):  # whom `told` names\n    """Told of `whom`."""\n'
    assert sorted(said_by(code).explanations) == [(1, "# whom  names"), (2, "Told of .")]
    assert words_of_template('a {{ told }} {% if x == "so it was" %}b') == "a  so it wasb"
