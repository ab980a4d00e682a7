"""What a campaign is: workloads, who shares the host, where, how long, how often; reads CAMPAIGN.yaml, runs nothing."""

from lab.campaign.model import (
    Accelerator,
    Backing,
    Campaign,
    Cpus,
    GuestSettings,
    Member,
    MemberGroup,
    PinningForm,
    Repeats,
    Temporal,
    Vhost,
)
from lab.campaign.reading import read_campaign

__all__ = [
    "Accelerator",
    "Backing",
    "Campaign",
    "Cpus",
    "GuestSettings",
    "Member",
    "MemberGroup",
    "PinningForm",
    "Repeats",
    "Temporal",
    "Vhost",
    "read_campaign",
]
