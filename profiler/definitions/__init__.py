"""Where each of the eight metrics comes from on each hypervisor, with which formula, and how far from the paper."""

from __future__ import annotations

from profiler.definitions.definition import Definition
from profiler.definitions.hypervisors import DEFINITIONS, TITLES
from profiler.definitions.page import page_markdown

__all__ = ["DEFINITIONS", "TITLES", "Definition", "page_markdown"]
