"""Commands name CPUs by the numbers of the host, and unpinned means every CPU that is not isolated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands, whole
from profiler.host_kinds import HostKind
from profiler.observed import Host, Instance, IsolationSettings, Pinning

GAPS = Host("h1", "kvm", pcpus=4, memory_mb=8192, cpu_ids=(0, 2, 16, 17))
ISOLATED = replace(GAPS, isolated_cpus=(16, 17))
SHOP = Instance("shop-7", vcpus=1)
FREE, PINNED = IsolationSettings(Pinning(((),))), IsolationSettings(Pinning(((17,),)))


@pytest.mark.parametrize(
    ("kind", "host", "pin", "unpin"),
    [
        ("kvm", GAPS, "17", "r"),
        ("kvm", ISOLATED, "17", "0,2"),  # `r` would be every CPU
        ("xen", GAPS, "17", "all"),
        ("xen", ISOLATED, "17", "0,2"),
        ("lxc", GAPS, "cpuset.cpus=17", "cpuset.cpus=0,2,16-17"),
        ("lxc", ISOLATED, "cpuset.cpus=17", "cpuset.cpus=0,2"),
    ],
)
def test_a_pin_is_to_the_hosts_own_numbers_and_its_undo_to_all_that_are_not_isolated(
    kind: HostKind, host: Host, pin: str, unpin: str
) -> None:
    (command,) = commands(replace(host, kind=kind), SHOP, FREE, PINNED)
    assert pin in command.argv
    assert unpin in command.undo


def test_a_pin_to_every_cpu_of_a_host_with_isolated_ones_is_a_pin() -> None:
    every = IsolationSettings(Pinning(((0, 2, 16, 17),)))
    assert commands(GAPS, SHOP, FREE, every) == ()
    (command,) = commands(ISOLATED, SHOP, FREE, every)
    assert (command.argv[-1], command.undo[-1]) == ("r", "0,2")


def test_a_cpu_that_the_host_lacks_is_in_no_command() -> None:
    with pytest.raises(InvalidInput, match="0,2,16-17") as refused:
        commands(GAPS, SHOP, FREE, IsolationSettings(Pinning(((1,),))))
    assert refused.value.field == "pinning"


@pytest.mark.parametrize(("host", "undo"), [(GAPS, "r"), (ISOLATED, "0,2")])
def test_the_driver_domain_goes_back_to_where_it_was(host: Host, undo: str) -> None:
    (command,) = whole.driver_commands(host, (16,), [SHOP], "native")
    assert (command.argv[-1], command.undo[-1]) == ("16", undo)
