"""How a model's card and the gate's verdict are printed: training data, figures, sentences, libraries, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.domain import Activation
from api.cards import figures, is_section, origins
from api.cli.output import clean, figure, print_table, say
from api.schemas.registry import ModelOut

ABOVE = ("version", "origin")  # of a card, that stand above it already
DIGEST = 12  # characters of a fingerprint that are shown; --json has all


def print_model(model: ModelOut) -> None:
    """Everything that is known of a model, in sections."""
    plain = [("version", model.version), ("status", model.status), ("origin", model.origin)]
    mix = origins(model.card.get("datasets"))
    if mix:
        plain.append(("rows by origin", mix))
    rest = {name: value for name, value in model.card.items() if name not in ABOVE and not is_section(name, value)}
    print_table(("", ""), [*plain, *_flat(rest)])
    if is_section("datasets", model.card.get("datasets")):
        _print_rows("trained on", [_dataset(card) for card in model.card["datasets"]])
    if is_section("figures", model.card.get("figures")):
        _print_rows("held out, as judged at the training", figures(model.card["figures"]))
    if model.verdict is not None:
        say()
        print_verdict(model.verdict)
    if is_section("libraries", model.card.get("libraries")):
        say()
        say("libraries: " + ", ".join(f"{name} {number}" for name, number in model.card["libraries"].items()))
    if model.history:
        say()
        print_history(model.history)


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """What the gate said, a sentence a line."""
    beside = f"the analytic model and {verdict['against']}" if verdict.get("against") else "the analytic model"
    say(f"The gate {'passes' if verdict['passed'] else 'refuses'} it, compared with {beside}:")
    for sentence in verdict["reasons"]:
        say(f"  {sentence}")


def print_history(history: Sequence[Activation]) -> None:
    """Who answered when."""
    rows = [(f"{change.at:%Y-%m-%d %H:%M:%S}", change.before, change.after, change.cause) for change in history]
    print_table(("at (UTC)", "before", "after", "by"), rows)


def _dataset(card: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value)[:DIGEST] if name == "sha256" else value for name, value in card.items()}


def _print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table whose columns are whatever the rows bring, but for what is deeper than a cell."""
    columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, Mapping)))
    numbers = [at for at, name in enumerate(columns) if all(isinstance(row.get(name, 0), int | float) for row in rows)]
    say()
    say(f"{title}:")
    print_table(columns, [[figure(row.get(name)) for name in columns] for row in rows], right=numbers)


def _flat(card: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in card.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and not any(isinstance(item, Mapping | list) for item in value):
            rows.append((f"{prefix}{name}", ", ".join(clean(item) for item in value)))
        else:
            rows.append((f"{prefix}{name}", figure(value)))
    return rows
