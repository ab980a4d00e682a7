"""`cotenant sync libvirt` with two real libvirtds: a guest appears, changes size, moves, and vanishes.

Guests stay paused, for libvirt reports them all the same. The move is made by hand, the same definition with the same
UUID there and no longer here: both libvirtds are on one machine, and a migration onto itself is refused by libvirt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.inventories.libvirt import CpuRules, Libvirt, ask, cpu_name
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.parse.libvirt import CpuNeed
from tests.libvirt.daemon import Daemon

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
_XML = f"""<domain type='qemu'><name>wanderer</name><uuid>{UUID}</uuid><memory unit='MiB'>64</memory>
<vcpu current='1'>2</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"""
pytestmark = pytest.mark.libvirt


@pytest.fixture(scope="module")
def daemons() -> Iterator[tuple[Daemon, Daemon]]:
    from tests.libvirt.conftest import _missing

    if (reason := _missing()) and "libvirt-python" not in reason and "wrk" not in reason:
        pytest.skip(reason)
    made: list[Daemon] = []
    try:
        for _ in range(2):
            made.append(Daemon())
            made[-1].start()
        yield made[0], made[1]
    finally:
        for daemon in made:
            daemon.close()


def _start(daemon: Daemon, xml: str = _XML) -> None:
    definition = daemon.directory / "wanderer.xml"
    definition.write_text(xml, encoding="utf-8")
    daemon.virsh("create", str(definition), "--paused")


def test_a_guest_appears_changes_moves_and_vanishes(daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    here, there = daemons
    names = {here.uri: "kvm01", there.uri: "kvm02"}  # both tell this machine's name

    def ask_by_name(uri: str, commands: object) -> list[str]:
        hostname, *others = ask(uri, tuple(commands))  # type: ignore[arg-type]
        return [names[uri] if "hostname" in commands else hostname, *others]  # type: ignore[operator]

    source = Libvirt((here.uri, there.uri), ask_host=ask_by_name)
    with Advisor(Settings(database=f"sqlite:///{tmp_path}/db.sqlite3", state_dir=tmp_path)) as advisor:

        def followed() -> list[tuple[str, str | None, int]]:
            reading = source.read()
            assert reading.complete, reading.parts
            advisor.inventory.follow(reading)
            return [(one.id, one.host, one.vcpus) for one in advisor.cloud.inventory().instances]

        assert followed() == []
        _start(here)
        _start(there, _XML.replace("wanderer", "resident").replace(UUID, UUID[:-1] + "0"))
        stays = ("resident", "kvm02", 1)
        assert followed() == [stays, ("wanderer", "kvm01", 1)]
        here.virsh("destroy", "wanderer")
        _start(here, _XML.replace("current='1'", "current='2'"))
        assert followed() == [stays, ("wanderer", "kvm01", 2)]
        here.virsh("destroy", "wanderer")
        _start(there)
        assert followed() == [stays, ("wanderer", "kvm02", 1)]
        there.virsh("destroy", "wanderer")
        assert followed() == [stays]


def test_libvirt_itself_says_which_cpus_suit_a_model_over_a_connection_that_only_reads(
    daemons: tuple[Daemon, Daemon],
) -> None:
    """A guest of an ordinary model may come here, and one with a feature that CPUs no longer have may not."""
    here, _ = daemons
    name = cpu_name(ask(here.uri, ["capabilities"])[0])
    assert name
    rules = CpuRules(lambda uri, commands: ask(here.uri, commands) if uri == here.uri else ["Host CPU is a superset\n"])
    rules.add_host(here.uri, name)
    rules.add_host("qemu+ssh://elsewhere/system", "other-1")
    old = CpuNeed("qemu64", ("3dnowext",))  # which AMD left out in 2011
    assert rules.of_domain(old, "other-1") == {"require_any.cpu_host": "other-1"}
    assert rules.of_domain(CpuNeed("kvm64"), "other-1") == {}
    assert rules.of_domain(CpuNeed("no-such-model"), "other-1") == {}
    assert rules.of_domain(CpuNeed(whole_host=True), name) == {"require.cpu_host": name}
