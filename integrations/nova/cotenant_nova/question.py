"""What Nova's scheduler asks as a question to Cotenant, `POST /v1/placements`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cotenant_nova.flavors import described

SHOWN = 20  # candidates that are looked at one by one; all others that can take it rank behind them
_ID = re.compile(r"[A-Za-z0-9._:-]{1,255}\Z")
HINT = "cotenant:workload"


def question(spec: Any, hosts: Sequence[str], objective: str) -> dict[str, Any]:
    """The body for a RequestSpec of nova and the candidates' node names.

    The instance is named by its UUID, as `cotenant sync openstack` names it, so that a held answer ends when the
    inventory shows it. Nova changes nobody's settings, so a host that needs other ones is to be refused, not mended:
    what is held for the server is then the host that the weigher lets win.
    """
    flavor = spec.flavor
    instance = {
        "id": spec.instance_uuid,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        **described(dict(flavor.extra_specs or {}), flavor.vcpus),
    }
    hinted = spec.get_scheduler_hint(HINT) if "scheduler_hints" in spec and spec.scheduler_hints else None
    if isinstance(hinted, str) and 1 <= len(hinted) <= 255 and hinted.isprintable():
        instance["workload"] = hinted
    return {
        "instance": instance,
        "hosts": [host for host in hosts if _ID.match(host)],
        "objective": objective,
        "limit": SHOWN,
        "explain": False,
        "mitigate": False,
    }
