"""Settings as `openstack` commands: exact argv and undo after the reference texts; no cloud runs here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192, threads_per_core=2, labels={"render": "openstack"})
SHOP = Instance("shop-7", vcpus=2, labels={"flavor": "shop.large", "port": "2f1c"})
POLICY = "cotenant-{}-shop-7".format


def rendered(
    now: IsolationSettings, then: IsolationSettings, instance: Instance = SHOP, host: Host = HOST, cgroup: int = 2
) -> list[tuple[str, str]]:
    made = commands(host, instance, now, then, cgroup=cgroup)
    return [(" ".join(command.argv), " ".join(command.undo)) for command in made]


def quota(period: int, quota: int) -> str:
    return f"set --property quota:cpu_period={period} --property quota:cpu_quota={quota}"


@pytest.mark.parametrize(
    ("now", "then", "argv", "undo"),
    [
        pytest.param(
            {}, {"cap_percent": 50}, quota(100000, 25000),
            "unset --property quota:cpu_period --property quota:cpu_quota",
            id="a cap of half a CPU is a quarter for each of two vCPUs",
        ),
        pytest.param(
            {"cap_percent": 50}, {"cap_percent": 100}, quota(100000, 50000), quota(100000, 25000), id="another cap"
        ),
        pytest.param(
            {"weight": 512}, {"weight": 128},
            "set --property quota:cpu_shares=50", "set --property quota:cpu_shares=200", id="another weight",
        ),
        pytest.param(
            {}, {"disk_limit_mb_s": 50}, "set --property quota:disk_total_bytes_sec=50000000",
            "unset --property quota:disk_total_bytes_sec", id="a disk limit",
        ),
        pytest.param(
            {}, {"pinning": Pinning(((1,), (3,)))}, "set --property hw:cpu_policy=dedicated",
            "unset --property hw:cpu_policy", id="a CPU for each vCPU",
        ),
    ],
)  # fmt: skip
def test_a_difference_becomes_extra_specs_of_the_flavor_with_their_undo(
    now: dict[str, Any], then: dict[str, Any], argv: str, undo: str
) -> None:
    assert rendered(IsolationSettings(**now), IsolationSettings(**then)) == [
        (f"openstack flavor {argv} shop.large", f"openstack flavor {undo} shop.large")
    ]


def test_a_dedicated_host_without_smt_and_with_driver_cpus_is_asked_for_again() -> None:
    host = replace(HOST, threads_per_core=1, driver_cpus=(0,))
    ((argv, _),) = rendered(IsolationSettings(), IsolationSettings(pinning=Pinning(((1,), (3,)))), host=host)
    assert "hw:emulator_threads_policy=share" in argv
    assert "hw:cpu_thread_policy=isolate" in argv


@pytest.mark.parametrize("pinning", ["0:1|1:1", "0:0-1|1:2-3", "0:1"])
def test_pins_that_nova_cannot_express_are_said(pinning: str) -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(pinning=Pinning.parse(pinning)))
    assert command.argv == ()
    assert "cannot keep to" in command.note


def network(mode: Literal["shared", "dedicated"], rate: float, ceil: float | None = None) -> IsolationSettings:
    return IsolationSettings(network=NetworkSettings(mode, rate, ceil))


def test_a_dedicated_rate_is_a_policy_of_its_own_on_the_port_with_a_burst_of_80_percent() -> None:
    name = POLICY("100000-80000")
    rule = "--type bandwidth-limit --max-kbps 100000 --max-burst-kbits 80000 --egress"
    assert rendered(IsolationSettings(), network("dedicated", 100)) == [
        (f"openstack network qos policy create {name}", f"openstack network qos policy delete {name}"),
        (f"openstack network qos rule create {rule} {name}", ""),
        (f"openstack port set --qos-policy {name} 2f1c", "openstack port unset --qos-policy 2f1c"),
    ]


def test_a_tiny_rate_keeps_a_burst_of_one_frame_and_a_shared_one_is_kept_free_and_limited_by_its_ceil() -> None:
    assert "--max-kbps 10 --max-burst-kbits 12 " in rendered(IsolationSettings(), network("dedicated", 0.01))[1][0]
    made = rendered(IsolationSettings(), network("shared", 100, 400))
    assert "--type minimum-bandwidth --min-kbps 100000 --egress" in made[1][0]
    assert "--type bandwidth-limit --max-kbps 400000 --max-burst-kbits 320000 --egress" in made[2][0]


def test_another_rate_is_another_policy_and_the_old_one_goes_when_the_port_has_left_it() -> None:
    made = rendered(network("dedicated", 100), network("dedicated", 50))
    old, new = POLICY("100000-80000"), POLICY("50000-40000")
    limit = "openstack network qos rule create --type bandwidth-limit"
    assert [argv for argv, _ in made] == [
        f"openstack network qos policy create {new}",
        f"{limit} --max-kbps 50000 --max-burst-kbits 40000 --egress {new}",
        f"openstack port set --qos-policy {new} 2f1c",
        "",
        f"openstack network qos policy delete {old}",
    ]
    assert [undo for _, undo in made][2:] == [
        f"openstack port set --qos-policy {old} 2f1c",
        f"{limit} --max-kbps 100000 --max-burst-kbits 80000 --egress {old}",
        f"openstack network qos policy create {old}",
    ]


def test_a_policy_that_the_port_had_before_comes_back_with_undo_and_is_never_deleted() -> None:
    server = replace(SHOP, labels={**SHOP.labels, "qos_policy": "gold"})
    made = rendered(network("dedicated", 100), network("dedicated", 50), server)
    assert made[-1][1] == "openstack port set --qos-policy gold 2f1c"
    assert not any("delete" in argv for argv, _ in made)


def test_without_a_port_the_flavor_limits_what_is_sent_in_kilobytes() -> None:
    server = replace(SHOP, labels={"flavor": "shop.large"})
    ((argv, undo),) = rendered(IsolationSettings(), network("dedicated", 80), server)
    for part in ("average=10000", "peak=10000", "burst=8000"):
        assert f"--property quota:vif_outbound_{part}" in argv
    assert undo.startswith("openstack flavor unset --property quota:vif_outbound_average")


def test_without_a_flavor_and_a_port_it_is_said_which_labels_are_missing() -> None:
    wanted = IsolationSettings(cap_percent=50, network=NetworkSettings("dedicated", 80))
    made = commands(HOST, Instance("shop-7"), IsolationSettings(), wanted)
    assert all(command.argv == () for command in made)
    labels = ["label flavor", "label port"]
    assert [label for command in made for label in labels if label in command.note] == labels


def test_running_servers_keep_what_they_have_and_on_some_hosts_nova_s_quotas_do_not_hold() -> None:
    for kind, words in (("kvm", "next start"), ("xen", "not on host h1")):
        host = replace(HOST, kind=kind)  # type: ignore[arg-type]
        (command,) = commands(host, SHOP, IsolationSettings(), IsolationSettings(cap_percent=50))
        assert words in command.note
        assert bool(command.argv) == (kind == "kvm")


@pytest.mark.parametrize("label", ["flavor", "port", "qos_policy"])
@pytest.mark.parametrize("value", ["-x", "--help", "", " ", "a\nb", "a b ", "x=y", "$(id)", "a;b", "a/b", "a" * 256])
def test_a_name_that_could_be_anything_else_is_refused_with_its_label(label: str, value: str) -> None:
    server = replace(SHOP, labels={**SHOP.labels, label: value})
    wanted = IsolationSettings(cap_percent=50, network=NetworkSettings("dedicated", 80))
    with pytest.raises(InvalidInput) as refused:
        commands(HOST, server, IsolationSettings(), wanted)
    assert refused.value.field == f"instance.labels.{label}"


def test_an_unknown_target_is_refused_and_one_that_is_asked_for_goes_before_the_label() -> None:
    wanted = IsolationSettings(weight=512)
    with pytest.raises(InvalidInput, match=r"native, .*openstack.*, not for 'vmware'"):
        commands(HOST, SHOP, IsolationSettings(), wanted, target="vmware")
    with pytest.raises(InvalidInput, match="not for 'esx'"):
        commands(replace(HOST, labels={"render": "esx"}), SHOP, IsolationSettings(), wanted)
    (command,) = commands(HOST, SHOP, IsolationSettings(), wanted, target="native")
    assert command.argv[0] == "virsh"
