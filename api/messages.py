"""What libraries say of wrong input, as Cotenant tells it."""

from __future__ import annotations


def own_words(message: str) -> str:
    """A message without what pydantic writes before the words of a validator; Typer checks options by pydantic, too."""
    return message.removeprefix("Value error, ")
