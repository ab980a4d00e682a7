"""Network settings as tc commands: the tree, the class, its filter, and what is said where something is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from advisor.render.tc import class_minor
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192, nic_mbit=1000, labels={"uplink": "eth0"})
SHOP = Instance("shop-7", labels={"mac": "52:54:00:12:34:56"})
MINOR = f"{class_minor('shop-7'):x}"
SHAPED = Instance("batch-1", settings=IsolationSettings(network=NetworkSettings("dedicated", 100)))


def rendered(
    now: NetworkSettings | None, then: NetworkSettings, instance: Instance = SHOP, neighbours: tuple[Instance, ...] = ()
) -> list[str]:
    before, after = IsolationSettings(network=now), IsolationSettings(network=then)
    return [" ".join(command.argv) for command in commands(HOST, instance, before, after, neighbours=neighbours)]


def test_the_first_class_on_an_uplink_comes_with_the_tree_around_it() -> None:
    assert rendered(None, NetworkSettings("shared", 200, 600)) == [
        "tc qdisc add dev eth0 root handle 1: htb default 2",
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 1000mbit ceil 1000mbit burst 125000b cburst 125000b"
        " prio 0 quantum 60000",
        "tc class add dev eth0 parent 1:1 classid 1:2 htb rate 500mbit ceil 1000mbit burst 62500b cburst 125000b"
        " prio 1 quantum 60000",
        "tc qdisc add dev eth0 parent 1:2 handle 2: fq_codel",
        f"tc class add dev eth0 parent 1:1 classid 1:{MINOR} htb rate 200mbit ceil 600mbit burst 25000b cburst 75000b"
        " prio 1 quantum 25000",
        f"tc qdisc add dev eth0 parent 1:{MINOR} handle {MINOR}: fq_codel",
        f"tc filter add dev eth0 parent 1: protocol all pref {class_minor('shop-7')} u32 match ether src"
        f" 52:54:00:12:34:56 flowid 1:{MINOR}",
    ]


def test_beside_a_shaped_neighbour_only_the_own_class_is_made() -> None:
    made = rendered(None, NetworkSettings("dedicated", 200), neighbours=(SHAPED,))
    assert [argv.split()[1:3] for argv in made] == [["class", "add"], ["qdisc", "add"], ["filter", "add"]]


def test_a_dedicated_class_has_its_rate_as_ceil() -> None:
    (made,) = rendered(NetworkSettings("dedicated", 100), NetworkSettings("dedicated", 0.5))
    assert f"classid 1:{MINOR} htb rate 500kbit ceil 500kbit burst 1514b cburst 1514b" in made


def test_a_shared_class_without_a_ceil_may_borrow_the_whole_line() -> None:
    assert "rate 200mbit ceil 1000mbit" in rendered(None, NetworkSettings("shared", 200))[4]


def test_a_latency_instance_is_served_before_the_others() -> None:
    made = rendered(None, NetworkSettings("shared", 200), replace(SHOP, service="latency"))
    assert [argv.split()[argv.split().index("prio") + 1] for argv in made if " prio " in argv] == ["0", "1", "0"]


def test_a_changed_class_is_changed_in_one_command_and_back() -> None:
    now, then = NetworkSettings("dedicated", 100), NetworkSettings("shared", 200, 400)
    (command,) = commands(HOST, SHOP, IsolationSettings(network=now), IsolationSettings(network=then))
    assert command.argv[:3] == command.undo[:3] == ("tc", "class", "change")
    assert command.argv[10:14] == ("rate", "200mbit", "ceil", "400mbit")
    assert command.undo[10:14] == ("rate", "100mbit", "ceil", "100mbit")


def test_the_filter_goes_before_its_class_and_the_tree_goes_only_with_the_last_class() -> None:
    now, none = NetworkSettings("dedicated", 100), NetworkSettings("none")
    alone = [argv.split()[1:3] for argv in rendered(now, none)]
    assert alone[:3] == [["filter", "del"], ["qdisc", "del"], ["class", "del"]]
    assert alone[3:] == [["qdisc", "del"], ["class", "del"], ["class", "del"], ["qdisc", "del"]]
    assert len(rendered(now, none, neighbours=(SHAPED,))) == 3


def test_the_tree_stays_when_it_is_not_known_who_else_is_there() -> None:
    now, none = (
        IsolationSettings(network=NetworkSettings("dedicated", 100)),
        IsolationSettings(network=NetworkSettings()),
    )
    assert not any("root" in command.argv for command in commands(HOST, SHOP, now, none))


def test_without_a_mac_address_the_class_is_made_and_the_missing_filter_is_said() -> None:
    made = commands(
        HOST, Instance("shop-7"), IsolationSettings(), IsolationSettings(network=NetworkSettings("dedicated", 9))
    )
    assert made[-1].argv == ()
    assert f"class 1:{MINOR} gets no traffic before: tc filter add" in made[-1].note
    assert made[-2].argv[1:3] == ("qdisc", "add")


@pytest.mark.parametrize(
    ("host", "missing"),
    [(replace(HOST, kind="xen", labels={}), "label uplink"), (replace(HOST, kind="xen", nic_mbit=None), "nic_mbit")],
)
def test_an_unknown_uplink_or_line_speed_is_said_and_nothing_rendered(host: Host, missing: str) -> None:
    (command,) = commands(host, SHOP, IsolationSettings(), IsolationSettings(network=NetworkSettings("dedicated", 9)))
    assert command.argv == ()
    assert missing in command.note


@pytest.mark.parametrize("uplink", ["-all", "eth0 root", "", "..", "eth0\n", "x" * 16, "/dev/null"])
def test_an_uplink_that_is_no_interface_name_is_refused(uplink: str) -> None:
    wanted = IsolationSettings(network=NetworkSettings("dedicated", 9))
    with pytest.raises(InvalidInput, match="not an interface name"):
        commands(HOST, SHOP, IsolationSettings(), wanted, uplink=uplink)


@pytest.mark.parametrize("mac", ["52:54:00:12:34", "52:54:00:12:34:56 flowid 1:1", "", "-"])
def test_a_mac_that_is_none_is_refused(mac: str) -> None:
    with pytest.raises(InvalidInput, match="not a MAC address"):
        rendered(None, NetworkSettings("dedicated", 9), Instance("shop-7", labels={"mac": mac}))


def test_class_numbers_stay_clear_of_the_tree_and_within_16_bits() -> None:
    minors = {class_minor(f"vm-{number}") for number in range(2000)}
    assert min(minors) > 2
    assert max(minors) < 0xFFFF
    assert len(minors) > 1950
