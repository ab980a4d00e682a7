"""Plans: what should become of a whole cloud at once; no I/O."""

from advisor.planning.asking import check
from advisor.planning.making import make
from advisor.planning.usage import Usage, usage_of

__all__ = ["Usage", "check", "make", "usage_of"]
