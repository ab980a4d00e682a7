"""Probe udp: paced transfers through receivers, lines and buffers that are known."""

from __future__ import annotations

import pytest

from profiler.probes.base import ProbeError
from profiler.probes.throughput import BUCKET_BYTES, EndpointCpu, pack
from profiler.probes.udp import PROBE, _evaluate, _UdpTransfer
from tests.probes.two_ends import (
    FAR,
    joined,
    needs_namespaces,
    needs_tun,
    numbers,
    responder,
    run,
    shape,
    stuttering,
    values,
)


@pytest.mark.measured
def test_a_paced_transfer_keeps_its_rate_and_only_the_receiver_loses_packets_on_loopback() -> None:
    result, run_ = run("udp", "--rate-mbit", "200", "--seconds", "1")
    found = numbers(result)
    assert found["sent_rate"] <= 200 * 1.01
    assert found["throughput"] == pytest.approx(found["sent_rate"] * (1 - found["lost"] / 100), rel=0.1)
    sent = found["sent_rate"] * 1e6 / 8 / 1472  # packets in the second
    assert found["lost"] * sent / 100 == pytest.approx(found["dropped_by_receiver"], rel=0.02, abs=2)
    assert found["reordered"] == 0
    assert result.circumstances["rate_mbit"] == "200"
    assert len(run_.series) > 50
    assert len(PROBE.draw(run_).axes) == 2


@pytest.mark.measured
def test_a_receiver_that_is_scheduled_off_is_not_taken_for_a_driver_domain() -> None:
    with responder() as (served, port), stuttering(served.pid, 0.030, 0.030):
        result, _ = run("udp", "--rate-mbit", "200", "--seconds", "1.2", to=("127.0.0.1", port))
    assert 30 <= result.values["quiet_share"].value <= 85
    assert result.values["dropped_by_receiver"].value > 100
    assert any("own socket buffer had no room" in mark for mark in result.marks)
    # 128 KB wait in the socket for a receiver that comes back, a burst of pacing beside; nothing more
    assert result.values["buffer_burst"].value < 400_000
    assert result.values["kernel_buffer_burst"].value < 200_000


@needs_namespaces
@needs_tun
@pytest.mark.lab
@pytest.mark.measured
def test_what_a_stopped_driver_domain_buffers_is_found_as_a_lower_bound() -> None:
    """The relay between the ends is stopped for 60 ms at a time: 60 ms of 80 Mb/s are 600 KB in its queue."""
    with joined(relay=True) as ends, responder(*ends.inside(ends.far), listen=FAR) as (_, port):
        calm = values(ends.probe(port, "udp", "--rate-mbit", "80", "--seconds", "0.6"))
        assert ends.relay is not None
        with stuttering(ends.relay.pid, 0.060, 0.090, sessions=False):
            found = values(ends.probe(port, "udp", "--rate-mbit", "80", "--seconds", "1.5"))
    assert calm["buffer_burst"] < 300_000
    assert 300_000 <= found["buffer_burst"] <= 1_200_000
    assert found["kernel_buffer_burst"] == pytest.approx(found["buffer_burst"], rel=0.3)
    assert found["quiet_longest"] >= 50
    assert found["p95"] > 200  # far more than is sent


@needs_namespaces
@pytest.mark.lab
@pytest.mark.measured
def test_what_a_line_cannot_take_is_lost_on_the_path() -> None:
    with joined() as ends, responder(*ends.inside(ends.far), listen=FAR) as (_, port):
        shape(ends.near, "tbf", "rate", "50mbit", "burst", "16k", "latency", "10ms")
        found = values(ends.probe(port, "udp", "--rate-mbit", "100", "--seconds", "1"))
    assert found["throughput"] == pytest.approx(50 * 1472 / 1514, rel=0.10)
    assert found["lost"] == pytest.approx(100 * (1 - found["throughput"] / found["sent_rate"]), abs=4)
    assert found["dropped_by_receiver"] == 0


REPORT: dict[str, object] = {"packets": 10, "reordered": 0, "dropped": 0, "first_bytes": 56, "cpu_s": 0.1}
BUCKETS = pack([2 * BUCKET_BYTES, 10, 0, 1, 0, 10, BUCKET_BYTES])  # as Recorder packs them: one bucket, no gap
SENT = _UdpTransfer(10, 100.0, EndpointCpu(0.1, None), 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, None) for name in REPORT), ("packets", -1), ("packets", "many"), ("first_bytes", 10**9)],
)
def test_a_report_that_makes_no_sense_or_lacks_a_number_is_a_sentence(name: str, value: object) -> None:
    assert _evaluate(SENT, REPORT, 2 * BUCKETS, 100.0, 1472).values["lost"].value == 0
    with pytest.raises(ProbeError, match=f"makes no sense: {name} must be"):
        _evaluate(SENT, {**REPORT, name: value}, 2 * BUCKETS, 100.0, 1472)
