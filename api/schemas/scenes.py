"""Schema of the scene that a prediction is about."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from advisor.domain import Find, Scene, found_in
from api.schemas.asked import AskedInstance, all_asked
from api.schemas.base import Schema, examples
from api.schemas.inventory import HostItem, WorkloadItem, each_to_domain


class SceneBody(Schema):
    """A host and the instances that share it; workloads that are not given here are looked up by name."""

    model_config = examples(
        {
            "host": {"id": "h3", "kind": "kvm", "pcpus": 4, "memory_mb": 65536},
            "instances": [
                {"id": "shop-3", "vcpus": 2, "workload": "web-1k"},
                {"id": "batch-1", "vcpus": 2, "workload": "batch"},
            ],
            "workloads": [{"name": "web-1k", "metrics": {"cpu": 62.0}}, {"name": "batch", "metrics": {"cpu": 100.0}}],
        }
    )

    host: HostItem = Field(description="the host")
    instances: Annotated[list[AskedInstance], Field(min_length=1, max_length=1000)] = Field(
        description="the instances that share it"
    )
    workloads: Annotated[list[WorkloadItem], Field(max_length=1000)] = Field(
        default=[], description="profiles that are not stored, or replace stored ones"
    )

    def to_domain(self, find: Find = found_in(())) -> Scene:
        """The domain's Scene; `find` looks up an instance of the inventory. InvalidInput names what is wrong."""
        return Scene(
            host=self.host.as_domain(),
            instances=all_asked(self.instances, find, on=self.host.id),
            workloads=each_to_domain("workloads", self.workloads, WorkloadItem.as_domain),
        )
