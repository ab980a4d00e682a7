"""Plans: what should become of a whole cloud at once; no I/O."""

from advisor.planning.asking import check
from advisor.planning.making import make

__all__ = ["check", "make"]
