"""The definition of one metric on one hypervisor; the definitions are in the modules beside this one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric on one hypervisor: its source, formula, what it means there, its distance from the paper's definition
    (NEIGHBOR, section 3.4) and how it was verified (the test and what it is compared with)."""

    metric: str
    source: str
    formula: str
    distance: str
    verified: str
