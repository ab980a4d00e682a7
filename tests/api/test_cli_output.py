"""Tables and progress: rich where a person looks, plain where a program reads, obedient to nothing in them."""

from __future__ import annotations

import sys

import pytest

from api.cli.output import clean, print_table, progress, waiting

ROWS = [("h1", "0.9"), ("[bold red]h2[/]", "10.25"), ("same:a:a", "1")]


def test_plain_columns_are_aligned_and_have_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("host", "score"), ROWS, right=(1,))
    assert capsys.readouterr().out.splitlines() == [
        "host             score",
        "h1                 0.9",
        "[bold red]h2[/]  10.25",
        "same:a:a             1",
    ]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("host", "score"), [])
    assert capsys.readouterr().out == "host  score\n"


def test_on_a_terminal_names_are_not_read_as_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(("host", "score"), ROWS, right=(1,))
    shown = capsys.readouterr().out
    assert "[bold red]h2[/]" in shown
    assert "same:a:a" in shown
    assert "─" in shown


def test_control_characters_are_taken_out() -> None:
    assert clean("a\x1b[31m\n\u202eb") == "a�[31m��b"


def test_progress_is_a_line_for_every_tenth_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as advance:
        for step in range(101):
            advance("fitting", step / 100)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [f"fitting: {tenth * 10} %" for tenth in range(11)]


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress() as advance:
        advance("fitting \x1b[2J", 0.5)
        advance("same:a:a [/b]", 0.6)
    captured = capsys.readouterr()
    assert "same:a:a [/b]" in captured.err
    assert captured.out == ""
    assert "fitting: " not in captured.err


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_what_is_waited_for_is_reported_on_a_terminal_alone(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with waiting("Reading [/b]\x1b[2J.yaml"):
        pass
    captured = capsys.readouterr()
    assert ("Reading [/b]\ufffd[2J.yaml" in captured.err, captured.out) == (terminal, "")
    assert terminal or captured.err == ""
