"""`cotenant-lab show`: reads a measured dataset strictly, analyses it once, and prints it as text or an HTML page."""

from lab.show.analysis import DatasetAnalysis, analyse
from lab.show.pairs import FormResults, GroupScore

__all__ = ["DatasetAnalysis", "FormResults", "GroupScore", "analyse"]
