"""Settings as xl commands: exact argv and undo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, Pinning

HOST = Host("h1", "xen", pcpus=4, memory_mb=8192)
SHOP = Instance("shop-7", vcpus=2)
PINNED = Pinning(((2,), (3,)))


def rendered(now: IsolationSettings, then: IsolationSettings, scheduler: str = "credit2") -> list[tuple[str, str]]:
    made = commands(HOST, SHOP, now, then, scheduler=scheduler)
    return [(" ".join(command.argv), " ".join(command.undo)) for command in made]


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        (
            {}, {"pinning": PINNED},
            [("vcpu-pin shop-7 0 2", "vcpu-pin shop-7 0 all"), ("vcpu-pin shop-7 1 3", "vcpu-pin shop-7 1 all")],
        ),
        (
            {"pinning": PINNED}, {"pinning": Pinning(((2,), (0, 1, 2)))},
            [("vcpu-pin shop-7 1 0-2", "vcpu-pin shop-7 1 3")],
        ),
        (
            {"pinning": PINNED}, {"pinning": Pinning(((), ()))},
            [("vcpu-pin shop-7 0 all", "vcpu-pin shop-7 0 2"), ("vcpu-pin shop-7 1 all", "vcpu-pin shop-7 1 3")],
        ),
        ({"pinning": PINNED}, {"pinning": Pinning(((1,),))}, [("vcpu-pin shop-7 0 1", "vcpu-pin shop-7 0 2")]),
        ({}, {"pinning": Pinning(((0, 1, 2, 3),) * 2)}, []),
        ({}, {"cap_percent": 50}, [("sched-credit2 -d shop-7 -c 50", "sched-credit2 -d shop-7 -c 0")]),
        (
            {"cap_percent": 50}, {"cap_percent": 80},
            [("sched-credit2 -d shop-7 -c 80", "sched-credit2 -d shop-7 -c 50")],
        ),
        ({}, {"weight": 512}, [("sched-credit2 -d shop-7 -w 512", "sched-credit2 -d shop-7 -w 256")]),
    ],
)  # fmt: skip
def test_a_difference_becomes_an_xl_command_with_its_undo(
    now: dict[str, Any], then: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    made = rendered(IsolationSettings(**now), IsolationSettings(**then))
    assert made == [(f"xl {argv}", f"xl {undo}") for argv, undo in expected]


def test_the_first_credit_scheduler_has_its_own_command() -> None:
    assert rendered(IsolationSettings(), IsolationSettings(cap_percent=20), "credit") == [
        ("xl sched-credit -d shop-7 -c 20", "xl sched-credit -d shop-7 -c 0")
    ]


def test_a_scheduler_without_weight_and_cap_is_said_to_have_none() -> None:
    made = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=20), scheduler="rtds")
    assert [(command.argv, command.undo) for command in made] == [((), ())]
    assert "rtds" in made[0].note


@pytest.mark.parametrize(("asked", "written"), [(0.2, "1"), (33.4, "33"), (900, "200")])
def test_a_cap_stays_within_what_libxl_accepts_and_is_never_lifted_by_rounding(asked: float, written: str) -> None:
    made = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=asked))
    assert made[0].argv == ("xl", "sched-credit2", "-d", "shop-7", "-c", written)


def test_pins_come_before_what_loosens_and_that_before_what_tightens() -> None:
    now = IsolationSettings(cap_percent=100, weight=256)
    then = IsolationSettings(pinning=PINNED, cap_percent=50, weight=512)
    verbs = [argv.split()[1:] for argv, _ in rendered(now, then)]
    assert [verb[0] for verb in verbs[:2]] == ["vcpu-pin", "vcpu-pin"]
    assert [verb[3] for verb in verbs[2:]] == ["-w", "-c"]
    raised = IsolationSettings(pinning=PINNED, cap_percent=150, weight=128)
    assert [argv.split()[4] for argv, _ in rendered(now, raised)[2:]] == ["-c", "-w"]


def test_a_disk_limit_is_said_to_be_beyond_xl() -> None:
    (command,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(disk_limit_mb_s=50))
    assert command.argv == ()
    assert "cannot limit the disk" in command.note


@pytest.mark.parametrize("name", ["0", "17", "Domain-0", "-c", "--help", "-"])
def test_names_that_mean_another_domain_or_an_option_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no command can be rendered"):
        commands(HOST, Instance(name), IsolationSettings(), IsolationSettings(weight=512))


@pytest.mark.parametrize(
    ("pins", "words"), [(((2,), (4,)), "pCPU 4: host h1 has 0-3"), (((2,), (3,), (0,)), "has 2 vCPUs")]
)
def test_a_pinning_beyond_host_or_instance_is_refused(pins: tuple[tuple[int, ...], ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        rendered(IsolationSettings(), IsolationSettings(pinning=Pinning(pins)))


@pytest.mark.parametrize(
    ("labels", "tool"),
    [({}, "sched-credit2"), ({"scheduler": "credit"}, "sched-credit"), ({"scheduler": "credit2"}, "sched-credit2")],
)
def test_weights_are_given_to_the_scheduler_that_the_host_reported(labels: dict[str, str], tool: str) -> None:
    host = replace(HOST, labels=labels)
    (command,) = commands(host, Instance("web"), IsolationSettings(), IsolationSettings(weight=512))
    assert command.argv[1] == tool
