"""A measured dataset as people look at it: read strictly, computed once, then drawn as text or as one HTML page."""

from lab.show.pairs import Form, Score
from lab.show.shown import Shown, show

__all__ = ["Form", "Score", "Shown", "show"]
