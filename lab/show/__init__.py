"""A measured dataset as people look at it: read strictly, computed once, then drawn as text or as one HTML page."""

from lab.show.analysis import DatasetAnalysis, analyse
from lab.show.pairs import FormResults, GroupScore

__all__ = ["DatasetAnalysis", "FormResults", "GroupScore", "analyse"]
