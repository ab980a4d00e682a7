"""What every test of this folder finds: a hundred computes that are alike, and a scheduler that asks Cotenant."""

from __future__ import annotations

from collections.abc import Mapping

HOSTS = {f"h{number:03d}": {"vcpus": 16, "memory_mb": 65_536, "pcpus": 0} for number in range(1, 101)}
TIMEOUT_S = 3.0  # of the weigher's questions; a busy machine must be able to answer within it


def scheduler(url: str, *, filters: str = "ComputeFilter,CotenantFilter") -> Mapping[str, Mapping[str, object]]:
    """What nova.conf of the scheduler says, as docs/openstack.md does."""
    return {
        "filter_scheduler": {
            "available_filters": "nova.scheduler.filters.all_filters\n"
            "available_filters = cotenant_nova.filter.CotenantFilter",
            "enabled_filters": filters,
            "weight_classes": "nova.scheduler.weights.all_weighers,cotenant_nova.weigher.CotenantWeigher",
        },
        "cotenant": {"url": url, "timeout": TIMEOUT_S},
    }
