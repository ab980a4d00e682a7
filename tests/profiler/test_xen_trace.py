"""The trace of Xen's scheduler: against a plain reading of the recordings, and what must hold for any stream."""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.backends.xen.scheduling import LAG_S, RunStates, VcpuTimes
from profiler.parse.text import ParseError
from profiler.parse.xentrace import TraceStream
from tests.examples import examples
from tests.profiler.test_xen_recordings import MHZ, RECORDINGS, TRACES, needs_recordings
from tests.profiler.xen_host import BLOCK, IDLE, OFF, RUN, WAIT, TraceWriter, change, first_second, lost, record, stamp
from tests.profiler.xen_host import MHZ as FAKE_MHZ

_Record = tuple[int, int | None, int, tuple[int, ...]]  # pCPU, time stamp, event, words


def _plain(data: bytes) -> Iterator[_Record]:
    """Every record, as slowly and plainly as the format reads."""
    position = cpu = 0
    while position + 4 <= len(data):
        (header,) = struct.unpack_from("<I", data, position)
        timed, words = header >> 31, header >> 28 & 7
        if position + 4 + 8 * timed + 4 * words > len(data):
            return
        time = struct.unpack_from("<Q", data, position + 4)[0] if timed else None
        extra = struct.unpack_from(f"<{words}I", data, position + 4 + 8 * timed)
        position += 4 + 8 * timed + 4 * words
        if header & 0x0FFFFFFF == 0x1F003:
            cpu = extra[0]
        yield cpu, time, header & 0x0FFFFFFF, extra


def _until(data: bytes) -> int:
    """The time stamp up to which the records of every pCPU are there: recordings were cut at a size."""
    newest: dict[int, int] = {}
    for cpu, time, _, _ in _plain(data):
        newest[cpu] = max(newest.get(cpu, 0), time or 0)
    return min(newest.values())


def _plain_times(data: bytes, until: int) -> dict[int, Counter[int]]:
    """Cycles by vCPU and state, executions under -1."""
    stamps = [time for _, time, _, _ in _plain(data) if time is not None]
    changes = sorted((t, w[0], e) for _, t, e, w in _plain(data) if t is not None and e & 0xFF00F == 0x21001)
    since: dict[int, tuple[int, int]] = {}
    times: dict[int, Counter[int]] = defaultdict(Counter)
    for time, key, event in changes:
        if time > until or key >> 16 == IDLE:
            continue
        begin, _ = since.get(key, (min(stamps), 0))
        times[key][event >> 8 & 3] += time - begin
        since[key] = time, event >> 4 & 3
        times[key][-1] += event >> 4 & 3 == RUN
    for key, (begin, state) in since.items():
        times[key][state] += until - begin
    return times


def _analysed(data: bytes, until: int | None = None) -> RunStates:
    states = RunStates(MHZ)
    states.feed(data)
    states.finish(until)
    return states


@needs_recordings
@pytest.mark.parametrize("name", TRACES)
def test_times_are_those_of_a_plain_reading(name: str) -> None:
    data = (RECORDINGS / name).read_bytes()
    until = _until(data)
    times = _analysed(data, until).times()
    plain = _plain_times(data, until)
    assert {domain << 16 | vcpu for domain, vcpus in times.items() for vcpu in vcpus} == set(plain)
    for key, cycles in plain.items():
        run, wait, block = (round(cycles[state] * 1000 / MHZ) for state in (RUN, WAIT, BLOCK))
        assert times[key >> 16][key & 0xFFFF] == VcpuTimes(run, wait, block, cycles[-1])


@needs_recordings
@pytest.mark.parametrize("name", [name for name in TRACES if "mixed" in name])
def test_switches_are_those_that_the_scheduler_itself_recorded(name: str) -> None:
    data = (RECORDINGS / name).read_bytes()
    recorded = [cpu for cpu, _, event, words in _plain(data) if event == 0x2800A and words[0] != words[2]]
    switches = _analysed(data).switches
    assert len(recorded) - len(set(recorded)) <= switches <= len(recorded)  # who ran before the first one is unknown


@needs_recordings
@pytest.mark.parametrize("name", [name for name in TRACES if "mixed" in name])
def test_hypercalls_are_counted_whole(name: str) -> None:
    data = (RECORDINGS / name).read_bytes()
    calls = [words for _, _, event, words in _plain(data) if event == 0x20100D]
    states = _analysed(data)
    assert states.event_ops == sum(words[0] & 0xFFFFF == 32 for words in calls) > 0
    pages = sum(words[2] for words in calls if words[0] & 0xFFFFF == 20 and words[1] in (0, 4, 5))
    assert sum(states.grant_pages.values()) == pages > 0
    assert set(states.grant_pages) <= {0, -1}  # only Dom0 maps and copies


def _derived(name: str) -> dict[int, dict[str, float]]:
    text = (RECORDINGS / f"derived-{name}.txt").read_text(encoding="utf-8")
    return {
        int(domain): {key: float(value) for key, value in re.findall(r"'([^']+)': ([0-9.]+)", line)}
        for domain, line in re.findall(r"^dom (\d+) (.*)$", text, re.MULTILINE)
    }


# The recordings hold the first 0.11 s and 0.33 s of the 5 s that were analysed, so they agree only roughly.
@needs_recordings
@pytest.mark.parametrize(("name", "points", "share"), [("co1k1k", 6, 0.2), ("co1k100k", 12, 0.35)])
def test_colocated_guests_share_a_cpu_as_the_whole_captures_say(name: str, points: float, share: float) -> None:
    data = (RECORDINGS / f"xentrace-mixed-0x329000-{name}-head.bin").read_bytes()
    states = _analysed(data, _until(data))
    derived = _derived(name)
    for domain in (1, 2):
        times = states.times()[domain][0]
        assert times.run_ns / 1e7 / states.seconds == pytest.approx(derived[domain]["cpu%"], abs=points)
        assert times.wait_ns / 1e7 / states.seconds == pytest.approx(derived[domain]["wait%"], abs=points)
    whole = _analysed(data)
    pages = derived[0]["copy"] + derived[0]["map"]
    assert sum(whole.grant_pages.values()) / whole.seconds == pytest.approx(pages, rel=share)


@needs_recordings
@pytest.mark.parametrize("name", TRACES)
def test_every_vcpu_is_in_some_state_all_the_time(name: str) -> None:
    states = _analysed((RECORDINGS / name).read_bytes())
    for vcpus in states.times().values():
        for times in vcpus.values():
            total = times.run_ns + times.wait_ns + times.blocked_ns
            assert total == pytest.approx(states.seconds * 1e9, abs=5)


@needs_recordings
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 42_920), max_size=30), st.sampled_from(sorted(TRACES)))
def test_a_stream_may_be_cut_anywhere(cuts: list[int], name: str) -> None:
    data = (RECORDINGS / name).read_bytes()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = RunStates(MHZ)
    for begin, end in pairwise(edges):
        pieces.feed(data[begin:end])
    pieces.finish()
    whole = _analysed(data)
    assert (pieces.times(), pieces.records, pieces.switches) == (whole.times(), whole.records, whole.switches)
    assert (pieces.event_ops, pieces.grant_pages) == (whole.event_ops, whole.grant_pages)


@needs_recordings
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 42_919), st.binary(min_size=1, max_size=8), st.booleans())
def test_damaged_streams_are_read_or_refused_and_nothing_else(position: int, junk: bytes, insert: bool) -> None:
    data = (RECORDINGS / "xentrace-sched-min-0x21000.bin").read_bytes()
    damaged = data[:position] + junk + data[position + (0 if insert else len(junk)) :]
    states = RunStates(MHZ)
    try:
        states.feed(damaged)
        states.finish()
    except ParseError as error:
        assert "out of step" in error.reason
    for vcpus in states.times().values():
        assert all(min(t.run_ns, t.wait_ns, t.blocked_ns, t.executions) >= 0 for t in vcpus.values())


@given(st.binary(min_size=12, max_size=100))
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    if struct.unpack_from("<I", data)[0] != 0x1F003 | 2 << 28:
        with pytest.raises(ParseError, match="out of step"):
            TraceStream().feed(data)


def test_a_record_that_goes_beyond_its_window_is_refused() -> None:
    broken = struct.pack("<III", 0x1F003 | 2 << 28, 0, 12) + change(1.0, 1, RUN, WAIT)[:12]
    with pytest.raises(ParseError, match="beyond its window"):
        TraceStream().feed(broken)


def _fake(data: bytes) -> RunStates:
    states = RunStates(FAKE_MHZ)
    states.feed(data)
    return states


def test_a_wakeup_that_another_pcpu_recorded_counts_at_its_time() -> None:
    sleeper = change(1.0, 1, RUN, BLOCK), change(1.5, 1, WAIT, RUN)
    data = TraceWriter().window(1, change(0.0, 1, WAIT, RUN), *sleeper).window(0, change(1.2, 1, BLOCK, WAIT)).data
    states = _fake(data)
    states.finish(stamp(2.0))
    assert states.times()[1][0] == VcpuTimes(1_500_000_000, 300_000_000, 200_000_000, 2)


def test_a_vcpu_that_stays_in_one_state_is_counted_up_to_the_lag_behind_now() -> None:
    states = _fake(TraceWriter().window(0, change(10.0, 1, WAIT, RUN)).data)
    states.advance(10.0)
    assert states.times() == {}
    for now in (11.0, 12.0, 15.0):
        states.advance(now)
        assert states.times()[1][0].run_ns == pytest.approx((now - 10.0 - LAG_S) * 1e9, abs=2)


def test_a_record_that_comes_too_late_moves_no_time_back() -> None:
    states = _fake(TraceWriter().window(0, change(10.0, 1, WAIT, RUN)).data)
    states.advance(10.0)
    states.advance(12.0)
    before = states.times()[1][0]
    states.feed(TraceWriter().window(0, change(11.0, 1, RUN, BLOCK)).data)
    states.advance(13.0)
    after = states.times()[1][0]
    assert after.run_ns == before.run_ns
    assert after.blocked_ns == pytest.approx(1e9, abs=2)


def test_a_vcpu_that_no_record_names_is_settled_by_what_xl_says() -> None:
    states = _fake(TraceWriter().window(0, change(10.0, 1, WAIT, RUN)).data)
    states.advance(10.0)
    states.advance(11.0)
    for number, state in enumerate(("r--", "-b-", "---", "--p")):
        states.settle(2, number, state)
    states.settle(1, 0, "-b-")  # known already
    states.advance(12.0)
    second = pytest.approx(1e9, abs=2)
    times = [(t.run_ns, t.wait_ns, t.blocked_ns) for t in states.times()[2].values()]
    assert times == [(second, 0, 0), (0, 0, second), (0, second, 0), (0, 0, 0)]
    assert states.times()[1][0].blocked_ns == 0


def test_a_vcpu_whose_first_record_is_younger_than_the_horizon_has_the_state_that_this_one_ends() -> None:
    states = _fake(TraceWriter().window(0, change(10.0, 1, WAIT, RUN), change(11.9, 2, WAIT, RUN)).data)
    states.advance(12.0)
    states.settle(2, 0, "r--")  # what xl says is of now
    states.advance(13.0)
    times = states.times()[2][0]
    assert times.wait_ns + times.run_ns == pytest.approx(1e9, abs=2)
    assert times.wait_ns == pytest.approx((11.9 - (12.0 - LAG_S)) * 1e9, abs=0.11e9)


def test_a_vcpu_that_is_let_run_on_keeps_running_and_is_no_new_execution() -> None:
    states = _fake(TraceWriter().window(0, record(0x21002, 1.0, 5 << 16), record(0x21002, 2.0, 5 << 16)).data)
    states.finish(stamp(3.0))
    assert states.times()[5][0] == VcpuTimes(2_000_000_000, 0, 0, 0)


def test_switches_are_between_domains_and_not_between_vcpus_of_one() -> None:
    runs = [(1.0, 1, 0), (1.1, 1, 1), (1.2, 2, 0), (1.3, IDLE, 0), (1.4, 2, 0)]
    states = _fake(TraceWriter().window(0, *(change(t, domain, WAIT, RUN, vcpu) for t, domain, vcpu in runs)).data)
    assert states.switches == 3


def test_lost_records_are_counted() -> None:
    states = _fake(TraceWriter().window(0, change(1.0, 1, WAIT, RUN), lost(1.1, 17), change(1.2, 1, RUN, OFF)).data)
    assert (states.lost, states.records) == (17, 3)


def test_time_stamps_far_ahead_of_the_clock_are_refused() -> None:
    states = _fake(TraceWriter().window(0, change(10.0, 1, WAIT, RUN)).data)
    states.advance(10.1)
    states.feed(TraceWriter().window(0, change(1_000.0, 1, RUN, WAIT)).data)
    with pytest.raises(ParseError, match="ahead of the host's clock"):
        states.advance(10.2)


def test_domains_that_ended_are_forgotten() -> None:
    states = _fake(first_second(0.0))
    states.finish()
    assert states.domains == {0, 1, 2}
    states.keep({0, 2})
    assert set(states.times()) == {0, 2}


@st.composite
def _streams(draw: st.DrawFn) -> tuple[list[bytes], float]:
    """Pieces of a stream, one a second, of vCPUs that change state at will, and how late records come."""
    late = draw(st.sampled_from([0.0, 0.1, 0.9]))
    pieces: list[bytes] = []
    state = {vcpu: draw(st.integers(0, 3)) for vcpu in range(3)}
    for second in range(draw(st.integers(1, 5))):
        writer = TraceWriter()
        for cpu in range(2):
            moments = sorted(draw(st.lists(st.floats(0, 1), max_size=5)))
            records: list[bytes] = []
            for moment in moments:
                vcpu, after = draw(st.integers(0, 2)), draw(st.integers(0, 3))
                records.append(change(100 + second + moment - late, 1, state[vcpu], after, vcpu))
                state[vcpu] = after
            writer.window(cpu, *records)
        pieces.append(writer.data)
    return pieces, late


@settings(max_examples=examples(200), deadline=None)
@given(_streams())
def test_no_counter_ever_runs_backwards_or_faster_than_time(case: tuple[list[bytes], float]) -> None:
    pieces, _ = case
    states = RunStates(FAKE_MHZ)
    before: dict[int, VcpuTimes] = {}
    passed = 0.0
    for second, piece in enumerate(pieces):
        states.feed(piece)
        states.advance(101.0 + second)
        step, passed = states.seconds - passed, states.seconds
        now = states.times().get(1, {})
        for vcpu, times in now.items():
            old = before.get(vcpu, VcpuTimes(0, 0, 0, 0))
            grown = [times.run_ns - old.run_ns, times.wait_ns - old.wait_ns, times.blocked_ns - old.blocked_ns]
            assert min(*grown, times.executions - old.executions) >= 0
            assert sum(grown) <= step * 1e9 + 5
        before = now
