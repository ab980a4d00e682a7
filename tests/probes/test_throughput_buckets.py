"""Throughput per bucket, quiet spells and buffer bursts, on series with known answers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.throughput import (
    BUCKET_BYTES,
    CREDIT,
    Arrivals,
    GapWatch,
    Recorder,
    buffer_burst,
    next_start,
    quiet_spells,
)

MS = 1_000_000
arrivals_of_any_kind = st.lists(
    st.tuples(st.integers(0, 50 * MS), st.integers(1, 2 * BUCKET_BYTES)), min_size=1, max_size=200
)


def recorded(*events: tuple[int, int], floor_ns: int = 5 * MS) -> Arrivals:
    """Arrivals from (gap in ns, bytes) events."""
    recorder, now = Recorder(floor_ns), 1_700_000_000_000_000_000
    for gap, size in events:
        now += gap
        recorder.add(now, size)
    return Arrivals.unpack(recorder.packed())


def steady(mbit: float, seconds: float, packet: int = 8192) -> list[tuple[int, int]]:
    gap = int(packet * 8e3 / mbit)
    return [(gap, packet)] * int(seconds * 1e9 / gap)


def test_a_steady_stream_has_its_rate_in_every_bucket() -> None:
    arrivals = recorded(*steady(400, 0.5))
    assert arrivals.rates_mbit() == pytest.approx([400] * len(arrivals.sizes), rel=1e-3)
    assert arrivals.mean_mbit() == pytest.approx(400, rel=1e-3)
    assert quiet_spells(arrivals).count == 0
    assert buffer_burst(arrivals, 402).excess_bytes == 0  # at its link's rate no buffer is seen


@given(arrivals_of_any_kind)
def test_no_byte_is_lost_or_counted_twice(events: list[tuple[int, int]]) -> None:
    arrivals = recorded(*events)
    total = sum(size for _, size in events)
    assert arrivals.received == total
    assert 0 <= total - events[0][1] - sum(arrivals.sizes) < BUCKET_BYTES
    assert all(size >= BUCKET_BYTES for size in arrivals.sizes)
    assert all(earlier <= later for earlier, later in pairwise(arrivals.ends_ns))
    assert arrivals.duration_ns == sum(gap for gap, _ in events[1:])


@given(arrivals_of_any_kind)
def test_gaps_are_those_from_the_floor_on(events: list[tuple[int, int]]) -> None:
    assert [length for _, length in recorded(*events).gaps] == [gap for gap, _ in events[1:] if gap >= 5 * MS]


def test_a_clock_that_steps_back_makes_no_negative_time() -> None:
    arrivals = recorded((0, 1), (10 * MS, BUCKET_BYTES), (-8 * MS, BUCKET_BYTES), (9 * MS, BUCKET_BYTES))
    assert arrivals.ends_ns == (10 * MS, 10 * MS, 11 * MS)
    assert min(arrivals.rates_mbit()) > 0


@given(st.binary(max_size=200))
def test_nonsense_from_the_other_side_is_refused(block: bytes) -> None:
    try:
        arrivals = Arrivals.unpack(block)
    except ValueError:
        return
    assert len(arrivals.ends_ns) == len(arrivals.sizes)
    assert sum(arrivals.sizes) <= arrivals.received


def test_quiet_spells_are_counted_with_their_share_and_the_longest() -> None:
    on = steady(1000, 0.05)
    arrivals = recorded(*on, (30 * MS, 8192), *on, (50 * MS, 8192), *on)
    quiet = quiet_spells(arrivals)
    assert (quiet.count, quiet.longest_ms) == (2, 50)
    assert quiet.share_percent == pytest.approx(100 * 80 / 230, rel=0.01)
    assert quiet.threshold_ms == 5


def test_what_is_quiet_depends_on_how_long_a_bucket_should_take() -> None:
    arrivals = recorded(*steady(50, 0.5), (30 * MS, 8192), *steady(50, 0.5))
    assert quiet_spells(arrivals).count == 0  # a bucket takes 42 ms at 50 Mb/s
    assert quiet_spells(arrivals, 10 * MS).count == 1


@given(off_ms=st.integers(20, 80), drain=st.floats(1.5, 20))
def test_a_buffer_is_found_to_within_a_bucket_or_two_and_never_overstated(off_ms: int, drain: float) -> None:
    """A receiver is off while 1 Gb/s is buffered on the way; then it gets `drain` Gb/s until it has caught up."""
    buffered = off_ms * MS * 1000 / 8e3
    catching_up_s = off_ms / 1e3 / (drain - 1)
    arrivals = recorded(
        *steady(1000, 0.1), (off_ms * MS, 8192), *steady(1000 * drain, catching_up_s), *steady(1000, 0.1)
    )
    found = buffer_burst(arrivals, 1000).excess_bytes
    assert buffered - 2 * BUCKET_BYTES - 0.01 * buffered <= found <= buffered * 1.01 + 8192


@given(arrivals_of_any_kind, st.floats(1, 10_000))
def test_no_buffer_is_larger_than_all_that_came(events: list[tuple[int, int]], link: float) -> None:
    arrivals = recorded(*events)
    burst = buffer_burst(arrivals, link)
    assert 0 <= burst.excess_bytes <= sum(arrivals.sizes)
    assert buffer_burst(arrivals, 2 * link).excess_bytes <= burst.excess_bytes


@given(st.lists(st.integers(0, 20 * MS), min_size=1, max_size=40), st.integers(100_000, 5 * MS))
def test_a_late_sender_makes_good_no_more_than_a_tenth_of_an_interval(delays: list[int], interval: int) -> None:
    planned, sent = 0, []
    for delay in delays:
        now = planned + delay  # it woke so much too late
        sent.append(now)
        planned = next_start(planned, now, interval)
    for first in range(len(sent)):
        for later in range(first + 1, len(sent)):
            assert sent[later] - sent[first] >= (later - first - CREDIT) * interval - 1


def test_every_gap_of_a_watch_counts_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        """On which every sleep of 1 ms takes 10."""

        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, _seconds: float) -> None:
            self.now += 0.01

    class Over:
        left = 150_000

        def is_set(self) -> bool:
            self.left -= 1
            return self.left < 0

    monkeypatch.setattr("profiler.probes.throughput.time", Clock())
    watch = GapWatch()
    monkeypatch.setattr(watch, "_over", Over())
    watch._watch()
    found = watch.summary()
    assert found["gaps"] == 150_000
    assert found["gap_percent"] == pytest.approx(90)
    assert found["longest_gap_ms"] == pytest.approx(9)
