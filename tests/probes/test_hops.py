"""The hops probe on rounds with known answers, and for real: through two routers in a row, each a network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.base import ProbeError
from profiler.probes.hops import HopRound, summarise

ROOT = Path(__file__).parents[2]


def test_the_sum_is_of_all_three_hops_of_a_round() -> None:
    rounds = [HopRound(0, (1.0, 2.0, 3.0), ("a", "b", "c")), HopRound(1, (2.0, 3.0, 40.0), ("a", "b", "c"))]
    values, marks = summarise(rounds, 3, 3)
    assert (values["sum_min"].value, values["sum_max"].value) == (6, 45)
    assert values["hop1_median"].value == 1.5
    assert marks == ()


def test_a_silent_hop_counts_as_lost_there_and_its_round_has_no_sum() -> None:
    silent = HopRound(0, (1.0, None, 3.0), ("a", "", "c"))
    values, _ = summarise([silent, HopRound(1, (1.0, 2.0, 3.0), ("a", "b", "c"))], 3, 3)
    assert (values["sum_max"].value, values["hop2_lost"].value) == (6, 1)
    values, marks = summarise([silent] * 3, 3, 3)
    assert not {"hop2_median", "sum_median"} & set(values)
    assert any("hop 2 never answers" in mark for mark in marks)


def test_a_far_end_that_is_nearer_is_marked() -> None:
    values, marks = summarise([HopRound(0, (1.0, 2.0), ("a", "b"), arrived=2)], 2, 3)
    assert values["sum_median"].value == 3
    assert any("sum is of 2 and not of 3" in mark for mark in marks)


def test_a_first_hop_that_never_answers_is_an_error() -> None:
    with pytest.raises(ProbeError, match="first hop gives no answer"):
        summarise([HopRound(0, (None, 2.0), ("", "b"))], 2, 2)


rtts = st.none() | st.floats(0.001, 1e4)


@given(st.lists(st.tuples(rtts, rtts, rtts), min_size=1, max_size=20))
def test_a_sum_is_never_less_than_its_hops_and_losses_add_up(rounds: list[tuple[float | None, ...]]) -> None:
    found = [HopRound(0, rtt_ms, ("a", "b", "c")) for rtt_ms in rounds]
    try:
        values, _ = summarise(found, 3, 3)
    except ProbeError:
        assert all(rtt_ms[0] is None for rtt_ms in rounds)
        return
    for hop in range(3):
        assert values[f"hop{hop + 1}_lost"].value == sum(rtt_ms[hop] is None for rtt_ms in rounds)
    whole = [each for each in found if each.sum_ms is not None]
    assert ("sum_max" in values) == bool(whole)
    if whole:
        assert values["sum_max"].value >= max(rtt for each in whole for rtt in each.rtt_ms if rtt is not None)


# For real

LINKS = (("me", "r1", "10.213.1."), ("r1", "r2", "10.213.2."), ("r2", "far", "10.213.3."))
FAR = "10.213.3.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def row() -> Iterator[dict[str, str]]:
    with routed() as names:
        yield names


@pytest.fixture
def fresh_row() -> Iterator[dict[str, str]]:
    """A row of its own: what routers say about missing routes is limited without a setting."""
    with routed() as names:
        yield names


@contextlib.contextmanager
def routed() -> Iterator[dict[str, str]]:
    """Network namespaces me - r1 - r2 - far, by role; the middle two route."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2: it makes network namespaces")
    tag = secrets.token_hex(3)
    names = {role: f"cth-{tag}-{role}" for role in ("me", "r1", "r2", "far")}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, (left, right, net) in enumerate(LINKS):
            ends = f"l{number}", f"r{number}"
            ip("link", "add", ends[0], "netns", names[left], "type", "veth", "peer", ends[1], "netns", names[right])
            for role, end, host in ((left, ends[0], "1"), (right, ends[1], "2")):
                ip("-n", names[role], "addr", "add", f"{net}{host}/24", "dev", end)
                ip("-n", names[role], "link", "set", end, "up")
        for role in ("r1", "r2"):
            # routers of Linux complain six times in a row, then once a second: tests would wait for each other
            inside(names[role], "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0")
        ip("-n", names["me"], "route", "add", "default", "via", "10.213.1.2")
        ip("-n", names["r1"], "route", "add", "10.213.3.0/24", "via", "10.213.2.2")
        ip("-n", names["r2"], "route", "add", "10.213.1.0/24", "via", "10.213.2.1")
        ip("-n", names["far"], "route", "add", "default", "via", "10.213.3.1")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def inside(name: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ip", "netns", "exec", name, *command], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )


def hops(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return inside(name, sys.executable, "-m", "profiler.cli", "probe", "hops", "--json", "--every", "0.05", *arguments)


@pytest.mark.parametrize(("allowed", "how"), [("1 0", "raw socket"), ("0 0", "ping socket")])
@pytest.mark.measured
def test_both_routers_and_the_far_end_answer_in_their_order(row: dict[str, str], allowed: str, how: str) -> None:
    inside(row["me"], "sysctl", "-qw", f"net.ipv4.ping_group_range={allowed}")
    done = hops(row["me"], "--to", FAR, "--count", "8")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["circumstances"]["by"] == f"ICMP ({how})"
    assert document["circumstances"]["path"] == f"10.213.1.2 > 10.213.2.2 > {FAR}"
    values = {name: entry["value"] for name, entry in document["values"].items()}
    assert values["hops"] == 3
    assert values["hop1_lost"] == values["hop2_lost"] == values["hop3_lost"] == 0
    assert values["sum_min"] >= values["hop1_min"] + values["hop2_min"] + values["hop3_min"] > 0


def test_the_row_ends_at_a_far_end_that_is_nearer(row: dict[str, str]) -> None:
    done = hops(row["me"], "--to", "10.213.2.2", "--count", "2")
    document = json.loads(done.stdout)
    assert document["values"]["hops"]["value"] == 2
    assert any("sum is of 2 and not of 3" in mark for mark in document["marks"])


def test_an_address_that_no_router_knows_is_reported(fresh_row: dict[str, str]) -> None:
    done = hops(fresh_row["me"], "--to", "10.99.0.1", "--count", "1")
    document = json.loads(done.stdout)
    assert any("cannot be reached" in mark for mark in document["marks"])
