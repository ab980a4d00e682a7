"""`cotenant-lab show`: reads a measured dataset strictly, analyses it once, and prints it as text or an HTML page."""

from lab.show.analysis import DatasetAnalysis, analyse

__all__ = ["DatasetAnalysis", "analyse"]
