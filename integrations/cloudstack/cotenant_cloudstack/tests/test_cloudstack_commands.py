"""Settings as fields of a service offering, and what an offering cannot say."""

from __future__ import annotations

from dataclasses import replace

from advisor.render import commands, migrations
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192, cpu_mhz=2600, labels={"render": "cloudstack"})
SHOP = Instance("shop-7", vcpus=2, memory_mb=4096)


def notes(now: IsolationSettings, then: IsolationSettings, host: Host = HOST) -> list[str]:
    made = commands(host, SHOP, now, then)
    assert all((command.tool, command.argv, command.undo) == ("cmk", (), ()) for command in made)
    return [command.note for command in made]


def test_an_offering_is_given_whole_so_what_holds_already_stays_in_it() -> None:
    desired = IsolationSettings(cap_percent=50, network=NetworkSettings("dedicated", 100))
    (note,) = notes(IsolationSettings(disk_limit_mb_s=20), desired)
    assert (
        "cpunumber=2 cpuspeed=650 limitcpuuse=true memory=4096 networkrate=100 bytesreadrate=20000000 "
        "byteswriterate=20000000 "
    ) in note


def test_what_an_offering_cannot_say_is_said() -> None:
    desired = IsolationSettings(Pinning(((1,), (2,))), weight=512, network=NetworkSettings("shared", 100))
    assert [note.split()[-1] for note in notes(IsolationSettings(), desired)] == ["pinning", "cpuspeed)", "shop-7"]


def test_a_cap_without_the_clock_rate_is_said_and_not_guessed() -> None:
    (note,) = notes(IsolationSettings(), IsolationSettings(cap_percent=50), replace(HOST, cpu_mhz=None))
    assert "cpu_mhz" in note
    assert "cpuspeed" not in note


def test_a_machine_moves_by_the_ids_of_machine_and_host_and_its_offering_goes_along() -> None:
    other = replace(HOST, id="h2")
    weighted = replace(SHOP, settings=IsolationSettings(weight=512))
    (only,) = migrations.move(replace(weighted, host="h1"), replace(weighted, host="h2"), HOST, other, (), ())
    assert only.argv == ("cmk", "migrate", "virtualmachine", "virtualmachineid=shop-7", "hostid=h2")
    assert only.undo == ("cmk", "migrate", "virtualmachine", "virtualmachineid=shop-7", "hostid=h1")


def test_a_size_is_an_offering_and_said() -> None:
    (said,) = migrations.resize(HOST, replace(SHOP, vcpus=4), replace(SHOP, vcpus=1))
    assert said.argv == ()
    assert "a service offering of 1 vCPU (" in said.note
