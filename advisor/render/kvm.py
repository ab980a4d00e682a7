"""KVM by libvirt: what runs is changed by virsh, what starts by the domain's definition."""

from __future__ import annotations

from advisor.render.libvirt_definition import definition
from advisor.render.virsh import interface, migrate, move_driver, set_vcpus, steps

__all__ = ["definition", "interface", "migrate", "move_driver", "set_vcpus", "steps"]
