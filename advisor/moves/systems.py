"""The systems in which `cotenant migrate` moves instances, by name."""

from __future__ import annotations

from advisor.errors import InvalidInput
from advisor.moves.outcome import Mover

MOVERS = frozenset({"kubernetes"})


def open_mover(
    name: str, *, cloud: str | None = None, evict: bool = False, namespaces: tuple[str, ...] = (), patience_s: float
) -> Mover:
    """A mover that asked nothing yet; InvalidInput when there is none of that name."""
    if name not in MOVERS:
        raise InvalidInput(f"system {name[:60]!r} is none of {', '.join(sorted(MOVERS))}", field="system")
    from advisor.moves.kubernetes import KubernetesMover

    return KubernetesMover(cloud, evict=evict, namespaces=namespaces, patience_s=patience_s)
