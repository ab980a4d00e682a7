"""The request of Nova's scheduler as a question to Cotenant, `POST /v1/placements`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cotenant_nova.flavors import described

SHOWN = 20  # candidates with a score of their own; all others that can take the server rank behind them
_ID = re.compile(r"[A-Za-z0-9._:-]{1,255}\Z")
HINT = "cotenant:workload"


def question(spec: Any, hosts: Sequence[str], objective: str) -> dict[str, Any]:
    """The body for a RequestSpec of Nova and the candidates' node names.

    The instance is named by its UUID, as `cotenant sync openstack` names it, so that a held answer ends when the
    inventory shows it. Nova changes no settings, so a host that would need other ones is refused (`mitigate` false):
    the host that is held is then the one that the weigher lets win.
    """
    flavor = spec.flavor
    instance = {
        "id": spec.instance_uuid,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        **described({**_of_image(spec), **(flavor.extra_specs or {})}, flavor.vcpus),
    }
    workload = spec.get_scheduler_hint(HINT) if "scheduler_hints" in spec and spec.scheduler_hints else None
    if isinstance(workload, str) and 1 <= len(workload) <= 255 and workload.isprintable():
        instance["workload"] = workload
    return {
        "instance": instance,
        "hosts": [host for host in hosts if _ID.match(host)],
        "objective": objective,
        "limit": SHOWN,
        "explain": False,
        "mitigate": False,
    }


def _of_image(spec: Any) -> dict[str, str]:
    """What its image says of dedicated CPUs, as the extra spec that means the same."""
    image = spec.image if "image" in spec else None
    properties = image.properties if image is not None and "properties" in image else None
    policy = properties.get("hw_cpu_policy") if properties is not None else None
    return {"hw:cpu_policy": policy} if isinstance(policy, str) else {}
