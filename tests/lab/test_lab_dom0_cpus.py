"""Dom0's CPUs at run time: read from real output of xl, moved by the commands that the advisor renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.render.whole import driver_commands
from lab.dom0_cpus import Dom0Cpus, move_commands
from lab.errors import PreparationError
from lab.resource_registry import ResourceRegistry
from profiler.observed import Host

# Xen 4.17.7 with four pCPUs after `xl vcpu-set Domain-0 2` and `xl vcpu-pin Domain-0 all 0-1`
LISTED = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   -b-      19.6  0-1 / all
Domain-0                             0     1    1   r--      21.5  0-1 / all
Domain-0                             0     2    -   --p      14.1  0-1 / all
Domain-0                             0     3    -   --p      19.6  0-1 / all
"""


def test_online_vcpus_and_their_affinity_are_read_from_what_xl_lists() -> None:
    assert Dom0Cpus.parse(LISTED) == Dom0Cpus(2, 4, (0, 1))
    assert Dom0Cpus.parse(LISTED.replace("0-1 / all", "all / all")).cpus is None


def test_a_driver_of_more_cpus_than_dom0_was_booted_with_says_how_to_boot_it() -> None:
    with pytest.raises(PreparationError, match=r"booted with 4: boot it with dom0_max_vcpus=5"):
        Dom0Cpus.parse(LISTED).check((0, 1, 2, 3, 4))


@pytest.mark.parametrize(("now", "then"), [((0,), (0, 1)), ((0, 1, 2), (0,)), ((0, 1), (2, 3)), ((0,), (0, 1, 2, 3))])
def test_the_lab_moves_dom0_by_the_advisors_own_commands(now: tuple[int, ...], then: tuple[int, ...]) -> None:
    host = Host("xen01", kind="xen", pcpus=4, memory_mb=4096, driver_cpus=now)
    rendered = [list(command.argv) for command in driver_commands(host, then, (), "native")]
    everywhere = then == (0, 1, 2, 3)
    assert move_commands(len(now), len(then), None if everywhere else then) == rendered


def test_where_dom0_was_is_put_back_also_by_a_later_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def call(command: list[str], **_more: object) -> str:
        called.append(command)
        return LISTED

    monkeypatch.setattr("lab.resource_registry.call", call)
    registry = ResourceRegistry(tmp_path)
    registry.made("driver", registry.driver(4, None))
    registry.close()
    assert called == [
        ["xl", "vcpu-list", "Domain-0"],
        ["xl", "vcpu-pin", "Domain-0", "all", "all"],
        ["xl", "vcpu-set", "Domain-0", "4"],
    ]
