"""An option's name means one thing in all commands of `cotenant`, `cotenant-profiler` and `cotenant-lab`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from docs.site.commands import commands

# Options that several commands explain in words of their own: what all of them mean, and which commands take them. Who
# adds a command here has compared the meanings; a number, a file or a time that is something else gets another name.
ASKING = {  # commands that ask a running service
    *("plan", "tune", "predict", "report", "where", "migrate", "doctor", "slowing", "obtained", "score", "snapshot"),
    *("worth", "profile", "probe-plan", "freeze", "audit", "plans list", "plans show"),
    *("changes list", "changes show", "changes approve"),
    *(f"models {name}" for name in ("list", "show", "gate", "activate", "rollback", "shadow", "history", "quality")),
}
MEANINGS: dict[str, tuple[str, set[str]]] = {
    "--add": ("instances that are not there yet", {"plan", "report"}),
    "--all": ("everything, not what is named or has a chosen part", {"tune", "lab show"}),
    "--commands": ("print the commands that carry it out", {"where", "plan", "tune"}),
    "--connect": ("a new connection each time", {"probe"}),
    "--count": ("how often is measured", {"probe"}),
    "--dataset": ("directory of a dataset", {"train", "evaluate", "lab run"}),
    "--dry-run": ("say what would be done", {"history", "sync", "lab run"}),
    "--every": ("time from one repetition to the next", {"sync", "once", "run", "probe", "train", "migrate"}),
    "--force": ("although it is advised against", {"profile", "models activate"}),
    "--host": ("the id of one host", {"token create", "once", "run", "act", "probe"}),
    "--hosts": ("only these hosts", {"where", "plan"}),
    "--instance": ("whose placement is asked about", {"where", "probe-plan"}),
    "--kind": ("a kind of plan", {"plan", "report", "plans list"}),
    "--limit": ("most rows of an answer", {"where", "audit", "plans list", "changes list"}),
    "--listen": ("address and port of a server of one's own", {"demo", "serve", "run", "probe serve"}),
    "--max-moves": ("most moves", {"plan", "migrate"}),
    "--out": ("where what is made goes", {"demo", "report"}),
    "--plan-for": ("the demand that counts, of each", {"plan", "replay"}),
    "--prometheus": ("the Prometheus-compatible store that is read", {"history", "profile"}),
    "--picture": ("a file for a picture", {"profile", "probe"}),
    "--pinning": ("how instances are pinned in the lab", {"probe-plan", "lab show"}),
    "--replay": ("a recording in place of this machine", {"demo", "once"}),
    "--push": ("the server that gets what is measured or reported", {"run", "act", "probe"}),
    "--report": ("a file for a report", {"bench", "plan", "tune", "evaluate", "replay", "worth", "lab show"}),
    "--resume": ("go on with what was interrupted", {"apply", "lab run"}),
    "--rounds": ("rounds of a campaign", {"probe-plan", "lab run"}),
    "--seconds": ("how long is measured", {"run", "probe"}),
    "--seed": ("of what is drawn by lot", {"plan", "tune", "probe-plan", "replay", "probe"}),
    "--since": ("how far back is read", {"history", "profile", "slowing", "obtained", "worth", "score"}),
    "--server": (
        "the running service that is asked",
        ASKING,
    ),
    "--size": ("bytes that are sent at a time", {"probe"}),
    "--state": ("what is in a state, or the folder that keeps it", {"changes list", "lab clean", "lab run"}),
    "--uri": ("a connection of libvirt", {"act", "sync"}),
    "--undo": ("the way back: shown, or taken", {"apply", "plan", "plans show", "tune"}),
    "--watch": ("wait for what the other side reports", {"apply", "sync"}),
    "--token-file": (
        "a file with a token",
        ASKING | {"run", "act", "probe"},
    ),
}


def options() -> Iterator[tuple[str, str, str]]:
    """(option, command, help) of every option but `--json` and `--help`; all probes count as one command."""
    for command in commands():
        program, _, name = command.name.partition(" ")
        if program == "cotenant-lab":
            name = f"lab {name}"
        elif name.startswith("probe ") and name != "probe serve":
            name = "probe"
        for parameter in command.parameters:
            for option in parameter.name.split(", "):
                if option.startswith("--") and option not in ("--json", "--help"):
                    yield option, name, parameter.help


def grouped() -> dict[str, dict[str, set[str]]]:
    """Commands by option and help text."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for option, command, text in options():
        found[option][text].add(command)
    return found


def test_an_option_has_one_help_text_or_a_meaning_that_was_compared() -> None:
    explained = {option: set().union(*texts.values()) for option, texts in grouped().items() if len(texts) > 1}
    assert explained == {option: commands for option, (_, commands) in MEANINGS.items()}


@pytest.mark.parametrize(
    ("other_word", "word"),
    [("--output", "--out"), ("--folder", "--out"), ("--interval", "--every"),
     ("--duration", "--seconds"), ("--reads", "--count"), ("--bytes", "--size"), ("--anyway", "--force")],
)  # fmt: skip
def test_there_is_one_word_for_one_thing(other_word: str, word: str) -> None:
    names = {option for option, _, _ in options()}
    assert other_word not in names
    assert word in names
