"""Probe messages: NetPIPE's schedule, curves, and our own ping-pong beside NetPIPE's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.base import ProbeError
from profiler.probes.messages import LARGEST, PROBE, MessagePoint, NetpipeOutputError, at, read_netpipe, sizes
from profiler.probes.services import listens
from tests.probes.two_ends import StopOnce, numbers, responder, run

RECORDED = Path(__file__).parents[1] / "recordings" / "probes" / "netpipe-loopback.out"
needs_netpipe = pytest.mark.skipif(
    shutil.which("NPtcp") is None, reason="needs NetPIPE (apt-get install netpipe-tcp)"
)  # fmt: skip


def test_the_sizes_are_those_of_netpipe() -> None:
    recorded = [point.size for point in read_netpipe(RECORDED.read_text())]
    ours = [size for size in sizes(LARGEST) if size <= recorded[-1]]
    assert ours == recorded


@given(st.integers(1, 1 << 24), st.integers(0, 64))
def test_sizes_rise_up_to_the_largest(largest: int, perturbation: int) -> None:
    found = sizes(largest, perturbation)
    assert list(found) == sorted(set(found))
    assert found[0] >= 1
    assert found[-1] == largest
    assert {1 << power for power in range(25) if 1 << power <= largest} <= set(found)


def test_what_netpipe_wrote_is_read() -> None:
    curve = read_netpipe(RECORDED.read_text())
    assert len(curve) == 82
    assert curve[0] == MessagePoint(1, 8.23e-6)
    assert at(curve, 65_536) == pytest.approx(20.4e-6)
    assert curve[-2].mbit == pytest.approx(25_700, rel=0.01)  # of 10^6; NetPIPE printed 24508 of 2^20


@pytest.mark.parametrize(
    "text", ["", "no curve", "1 2", "1 2 x", "0 1 0.1", "1 1 0", "1 1 -1", "1 1 nan", "1 1 inf", "1e3 1 1"]
)
def test_what_is_no_curve_is_a_sentence(text: str) -> None:
    with pytest.raises(NetpipeOutputError):
        read_netpipe(text)


@given(st.text(alphabet="0123456789.e- \n", max_size=80))
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        curve = read_netpipe(text)
    except NetpipeOutputError:
        return
    assert all(point.size >= 1 and point.one_way_s > 0 for point in curve)


@given(st.integers(2, 1 << 20), st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_between_two_sizes_the_time_is_between_theirs(size: int, low: float, high: float) -> None:
    curve = (MessagePoint(1, low), MessagePoint(1 << 20, high))
    found = at(curve, size)
    assert found is not None
    assert min(low, high) * 0.999999 <= found <= max(low, high) * 1.000001
    assert at(curve, (1 << 20) + 1) is None


@pytest.mark.measured
def test_our_own_ping_pong_gives_the_papers_sizes() -> None:
    result, run_ = run("messages", "--tool", "own", "--seconds", "1.5", "--perturbation", "0")
    found = numbers(result)
    assert {"latency_1b", "latency_64b", "latency_1kb", "throughput_64b", "throughput_10mb", "peak"} <= set(found)
    assert found["throughput_64b"] == pytest.approx(64 * 8 / found["latency_64b"])  # bits per µs = Mb/s
    assert found["throughput_64b"] < found["throughput_16kb"] < found["throughput_1mb"] <= found["peak"]
    assert 0.5 < found["latency_1b"] < 10_000
    assert run_.series.columns["size_bytes"][-1] == LARGEST
    assert len(PROBE.draw(run_).axes) == 2


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """This process, and all that it starts meanwhile, run on a single CPU."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


@needs_netpipe
@pytest.mark.lab
@pytest.mark.measured
def test_netpipe_and_our_own_agree(one_cpu: None) -> None:
    """Within a factor of two: Python adds some time to each way. Both take the best of several trials.

    Both ends share one CPU: whether the kernel puts them on one or on two changes a round trip by a factor of three.
    """
    taken: dict[str, dict[object, float]] = {}
    for tool in ("netpipe", "own"):
        result, run_ = run("messages", "--tool", tool, "--largest", "2", "--perturbation", "0", *_SHORT[tool])
        assert result.circumstances["tool"] == tool
        one_way = [float(us or 0) for us in run_.series.columns["one_way_us"]]
        taken[tool] = dict(zip(run_.series.columns["size_bytes"], one_way, strict=True))
    for size in (1, 2):
        assert 0.5 < taken["own"][size] / taken["netpipe"][size] < 2, (size, taken)


_SHORT = {"netpipe": (), "own": ("--seconds", "0.8")}


@needs_netpipe
@pytest.mark.lab
@pytest.mark.measured
def test_netpipe_can_be_stopped_and_leaves_nothing() -> None:
    result, run_ = run("messages", "--tool", "netpipe", progress=StopOnce(2))
    assert result.marks[0] == "stopped before its end"
    assert 2 <= len(run_.series) < 60
    assert not listens(5002)


@needs_netpipe
@pytest.mark.lab
@pytest.mark.measured
def test_netpipe_stopped_before_its_first_size_is_an_error_that_says_so() -> None:
    with pytest.raises(ProbeError, match="stopped before NetPIPE had measured its first size"):
        run("messages", "--tool", "netpipe", progress=StopOnce(0))
    assert not listens(5002)


def test_without_netpipe_our_own_is_used_and_asking_for_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with responder() as (_, port):
        result, _ = run("messages", "--seconds", "0.3", "--largest", "64", to=("127.0.0.1", port))
        assert result.circumstances["tool"] == "own"
        with pytest.raises(ProbeError, match="not installed here"):
            run("messages", "--tool", "netpipe", to=("127.0.0.1", port))


def test_where_the_far_end_has_no_netpipe_our_own_is_used_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        far = responder()
        _, port = far.__enter__()
    try:
        here = tmp_path / "NPtcp"
        here.write_text("#!/bin/sh\nexit 1\n")
        here.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        result, _ = run("messages", "--largest", "4", to=("127.0.0.1", port))
        assert result.circumstances["tool"] == "own"
        assert any("not installed there" in mark for mark in result.marks)
    finally:
        far.__exit__(None, None, None)
