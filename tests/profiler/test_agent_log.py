"""The agent's log: one line per event whatever is in it, no floods, and no crash when no program reads."""

from __future__ import annotations

import io
import json
import threading

from hypothesis import given
from hypothesis import strategies as st

from profiler.agent.loop import Log


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_message_is_said_once_a_minute_with_a_count() -> None:
    said, clock = io.StringIO(), Clock()
    log = Log(said, clock=clock)
    for second in range(130):
        clock.now = float(second)
        log.warn("failed", same="xl", error="no answer")
    lines = said.getvalue().splitlines()
    assert len(lines) == 3
    assert "repeated" not in lines[0]
    assert all(line.endswith("repeated=59") for line in lines[1:])


def test_different_messages_do_not_silence_each_other() -> None:
    said = io.StringIO()
    log = Log(said)
    for same in ("a", "b", "a"):
        log.warn("failed", same=same)
    log.warn("late", same="a")
    assert len(said.getvalue().splitlines()) == 3


def test_messages_that_differ_in_numbers_only_are_the_same() -> None:
    said = io.StringIO()
    log = Log(said)
    for number in range(100):
        log.warn("failed", same=f"process {number} is gone", error=str(number))
    assert len(said.getvalue().splitlines()) == 1


def test_very_many_kinds_of_messages_take_little_memory() -> None:
    log = Log(io.StringIO())
    for number in range(5000):
        name = "".join(chr(ord("g") + int(digit)) for digit in str(number))
        log.warn("failed", same=name)
    assert len(log._logged) <= 1000


@given(st.text(max_size=100))
def test_whatever_is_said_is_one_line_that_reads_back(text: str) -> None:
    plain, as_json = io.StringIO(), io.StringIO()
    Log(plain).info("event", error=text)
    Log(as_json, as_json=True).info("event", error=text)
    assert plain.getvalue().count("\n") == as_json.getvalue().count("\n") == 1
    assert len(plain.getvalue().splitlines()) == 1, "no other kind of line end either"
    value = plain.getvalue().rstrip("\n").partition(" error=")[2]
    assert (json.loads(value) if value.startswith('"') else value) == text
    assert json.loads(as_json.getvalue())["error"] == text


def test_a_log_without_a_reader_does_not_stop_the_agent() -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    Log(Broken()).info("start")
    closed = io.StringIO()
    closed.close()
    Log(closed).info("start")


def test_lines_of_many_threads_do_not_mix() -> None:
    said = io.StringIO()
    log = Log(said)

    def work() -> None:
        for _ in range(50):
            log.info("event", text="x" * 50)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {line.partition("event=")[2] for line in said.getvalue().splitlines()} == {"event text=" + "x" * 50}
