"""Messages of libraries about wrong input, as Cotenant shows them."""

from __future__ import annotations


def own_words(message: str) -> str:
    """A message without the words that pydantic puts before a validator's; Typer checks options by pydantic, too."""
    return message.removeprefix("Value error, ")
