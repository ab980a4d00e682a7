"""Campaigns: workloads, groups, CPU placement, durations and repeats, read from CAMPAIGN.yaml. Nothing is run here."""

from lab.campaign.model import (
    Backing,
    Campaign,
    Cpus,
    EmulatedXen,
    GuestSettings,
    Member,
    OnOff,
    PinningForm,
    Repeats,
    Temporal,
    Volume,
)
from lab.campaign.reading import read_campaign

__all__ = [
    "Backing",
    "Campaign",
    "Cpus",
    "EmulatedXen",
    "GuestSettings",
    "Member",
    "OnOff",
    "PinningForm",
    "Repeats",
    "Temporal",
    "Volume",
    "read_campaign",
]
