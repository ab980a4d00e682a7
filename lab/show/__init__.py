"""A measured dataset as people look at it: read strictly, computed once, then drawn as text or as one HTML page."""

from lab.show.analysis import Shown, show
from lab.show.pairs import Form, Score

__all__ = ["Form", "Score", "Shown", "show"]
