"""Schemas of OpenNebula's external scheduler, by Scheduler.cc and VirtualMachineXML.cc of 6.10."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StrictInt

from api.schemas.base import WHOLE, Amount, AnswerBody
from api.schemas.base import Number as Finite
from api.schemas.schedulers.base import MOST_HOSTS, Incoming

Number = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), WHOLE]


class VmCapacity(Incoming):
    """What a virtual machine asks for."""

    cpu: Amount = Field(default=0.0, alias="CPU", description="share of physical CPUs, 0.5 = half a one")
    memory: Amount = Field(default=0.0, alias="MEMORY", description="KiB")
    disk_size: Amount = Field(default=0.0, alias="DISK_SIZE", description="MiB of the system datastore")


class VmRequest(Incoming):
    """A virtual machine that is to be placed, and where it could go."""

    id: Number = Field(alias="ID", description="number of the virtual machine")
    state: str = Field(default="", alias="STATE", description="its state, such as PENDING; not read")
    host_ids: Annotated[list[Number], Field(max_length=MOST_HOSTS)] = Field(
        default=[], alias="HOST_IDS", description="numbers of hosts that it could go to"
    )
    host_id: Number | None = Field(default=None, alias="HOST_ID", description="where it is, if it is anywhere")
    capacity: VmCapacity = Field(default=VmCapacity(), alias="CAPACITY", description="what it asks for")
    attributes: dict[str, str | StrictInt | Finite] = Field(
        default={},
        alias="VM_ATTRIBUTES",
        description="its template's attributes; `COTENANT_…` among them say what it runs and accepts",
    )


class PlaceBody(Incoming):
    """Virtual machines to be placed, or looked at."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "VMS": [
                        {
                            "ID": 32,
                            "STATE": "PENDING",
                            "HOST_IDS": [3, 4, 5],
                            "CAPACITY": {"CPU": 1.5, "MEMORY": 131072, "DISK_SIZE": 1024},
                            "VM_ATTRIBUTES": {"GNAME": "web", "COTENANT_WORKLOAD": "web-1k", "VCPU": "2"},
                        }
                    ]
                }
            ]
        }
    )

    vms: Annotated[list[VmRequest], Field(alias="VMS")] = Field(
        description="the virtual machines, in the order in which they are answered"
    )


class OptimizeBody(PlaceBody):
    """Virtual machines of a cluster that may move."""

    limit: Annotated[int, Field(strict=True, ge=1, le=1000), WHOLE] = Field(
        default=10, alias="LIMIT", description="most moves"
    )


class VmPlacement(AnswerBody):
    """Where one goes; without `HOST_ID` OpenNebula decides."""

    id: int = Field(serialization_alias="ID", description="number of the virtual machine")
    host_id: int | None = Field(
        default=None, serialization_alias="HOST_ID", description="number of the host that it should go to"
    )
    error: str | None = Field(default=None, serialization_alias="ERROR", description="what it says wrongly of itself")


class PlaceAnswer(AnswerBody):
    """The answer, one line per virtual machine that there is something to say of."""

    vms: list[VmPlacement] = Field(serialization_alias="VMS", description="where each goes")
