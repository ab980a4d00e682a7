"""Damages text as broken files and tools do."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """The text with up to four pieces replaced by others."""
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + draw(st.text(max_size=8)) + text[end:]
    return text
