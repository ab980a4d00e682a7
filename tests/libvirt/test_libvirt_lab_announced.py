"""Real guests under two libvirtds appear in an inventory that no file describes, move, change and vanish."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import Announced
from advisor.service import Advisor
from advisor.settings import Settings
from api.schemas.announcements import AnnouncementBody
from profiler.agent.announcement import Announcer
from profiler.agent.loop import Log
from profiler.backends.host_description import describe_host
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.sources import LiveSource
from tests.libvirt.guests import Lab, guests
from tests.libvirt.lab_source import LabSource

pytestmark = pytest.mark.libvirt
MOVED = str(uuid.UUID(int=0xC07E))


class Host:
    """A libvirtd with the agent's announcer beside it; its clock is a minute ahead at each look."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.backend = LibvirtBackend(LabSource(lab.daemon.state), name, LibvirtConnection(lab.uri))
        self._now = time.monotonic()
        self._announcer = Announcer(
            lambda: describe_host("libvirt", LiveSource()), Log(), version="1", clock=self._clock, machine=name
        )

    def _clock(self) -> float:
        return self._now

    def tell(self, advisor: Advisor) -> Announced:
        """Announce the guests, over the bytes that an agent would send."""
        self._now += 60.0
        self.backend._descriptions = {key: (*known[:2], -1e9) for key, known in self.backend._descriptions.items()}
        self._announcer.look(self.backend)
        body = self._announcer.due()
        assert body is not None
        return advisor.inventory.announce(AnnouncementBody.model_validate(json.loads(body)).to_domain())


@pytest.fixture
def advisor(tmp_path: Path) -> Iterator[Advisor]:
    with Advisor(Settings(database=f"sqlite:///{tmp_path / 'c.sqlite3'}")) as made:
        made.upgrade_database()
        yield made


def test_guests_of_two_libvirtds_appear_move_change_and_vanish(lab: Lab, advisor: Advisor) -> None:
    with guests(0, accelerator=lab.accelerator) as other:
        first, second = Host(lab, "kvm01"), Host(other, "kvm02")
        there = {guest.name for guest in lab.guests}
        db = lab.add("db-1", 2, paused=True, uuid=MOVED)
        try:
            found = first.tell(advisor)
            assert len(found.new) == len(there) + 1
            assert "db-1" in found.new
            assert second.tell(advisor).new == ()
            host, instance = advisor.inventory.host("kvm01"), advisor.inventory.instance("db-1")
            assert (host.kind, host.labels["source"]) == ("kvm", "agent")
            assert host.pcpus >= 2
            assert (instance.vcpus, instance.memory_mb, instance.labels["uuid"]) == (2, 96.0, MOVED)

            lab.daemon.virsh("schedinfo", *db.arguments, "--live", "--set", "vcpu_quota=50000")
            first.tell(advisor)
            first.tell(advisor)  # one instance's settings are read at a time
            for _ in range(len(there)):
                first.tell(advisor)
            assert advisor.inventory.instance("db-1").settings.cap_percent == 100.0  # of each of two vCPUs a half

            lab.daemon.virsh("setmem", *db.arguments, "--live", "--size", "64M")
            moving = other.add("db-1", 2, paused=True, uuid=MOVED)
            both = second.tell(advisor)
            assert both.moved == ()
            assert "kvm01" in both.notes[0]
            lab.destroy(db)
            assert first.tell(advisor).stopped == ("db-1",)
            assert second.tell(advisor).moved == ("db-1",)
            assert advisor.inventory.instance("db-1").host == "kvm02"

            other.destroy(moving)
            larger = other.add("db-1", 1, paused=True, uuid=MOVED)
            assert second.tell(advisor).changed == ("db-1",)
            assert advisor.inventory.instance("db-1").vcpus == 1

            other.destroy(larger)
            assert second.tell(advisor).stopped == ("db-1",)
            assert first.tell(advisor).gone == ()
        finally:
            if db in lab.guests:
                lab.destroy(db)
            first.backend.close()
            second.backend.close()
