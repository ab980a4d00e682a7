"""Campaigns: workloads, groups, CPU placement, durations and repeats, read from CAMPAIGN.yaml. Nothing is run here."""

from lab.campaign.model import (
    Accelerator,
    Backing,
    Campaign,
    Cpus,
    EmulatedXen,
    GuestSettings,
    Member,
    MemberGroup,
    OnOff,
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
    "EmulatedXen",
    "GuestSettings",
    "Member",
    "MemberGroup",
    "OnOff",
    "PinningForm",
    "Repeats",
    "Temporal",
    "Vhost",
    "read_campaign",
]
