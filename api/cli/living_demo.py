"""`cotenant demo --live`: a service that is fed by agents of real containers on this machine, or by a recorded day.

Both are lines of JSON, first one that says how time goes, then what an agent pushed and when (lab.living_cloud writes
them). They are posted to the service as agents do, with times of a day that passes in minutes, by which the service's
clock goes, too.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from advisor.errors import AdvisorError
from api.auth import parse_listen, require_loopback
from api.cli.asking import Service
from api.cli.options import settings
from api.cli.output import say
from api.html import Demonstration

RECORDING = Path(__file__).parent / "demo_cloud" / "day.jsonl.xz"
NEW_VM = {"id": "web-9", "vcpus": 1, "memory_mb": 1024}
_LIVE_BEGINS_H = 7.0
_SHOWN_AT_ONCE_H = 8.0  # of a recorded day: who looks is not to wait for the morning
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DAY_S = 86_400.0
_TELL_EVERY_S = 8.0
_MOST_SAMPLES = 3000  # in one call
_LATE_S = 4.0
_MOST_EVERY_S = 86_400.0  # that an announcement may say
_END_S = 20.0
_AGAIN_S = 1.0
_LATE = {"service.busy", "storage.unavailable", "deadline.passed"}  # answers of a service that is only slow
_PATIENCE_S = 120.0  # of a busy machine, on which the first answer waits for what is compiled
_TO = {"/v1/announcements": "announcements", "/v1/samples": "samples"}
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DayOfLines:
    """Where lines come from: how time goes in them, the lines, and in words what they are of.

    `begin_s` is the epoch time of second 0 of the lines, at which it is `begin_h` o'clock. `again`: a day that begins
    anew when it is over.
    """

    faster: float
    begin_h: float
    begin_s: float
    made: str
    lines: Callable[[], Iterator[Line]]
    again: bool

    @classmethod
    def of(cls, first: Line, lines: Callable[[], Iterator[Line]], *, again: bool) -> DayOfLines:
        """From the first line."""
        return cls(first["faster"], first["begin_h"], first["begin_s"], first["made"], lines, again)


class FastClock:
    """The time of a day that passes in minutes; `at_s` is how far the lines are now."""

    def __init__(self, day: DayOfLines, at_s: float) -> None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._begin = midnight + timedelta(hours=day.begin_h)
        self._day = day
        self._zero_s = time.monotonic() - at_s

    def passed_s(self) -> float:
        """Seconds of the lines that have passed."""
        return time.monotonic() - self._zero_s

    def __call__(self) -> datetime:
        return self.at(self.passed_s())

    def at(self, passed_s: float) -> datetime:
        """What time it is when so much of the lines has passed."""
        return self._begin + timedelta(seconds=self._day.faster * passed_s)

    def by_agent(self, text: str, lap_s: float) -> str:
        """A time that an agent wrote, as one of this day."""
        moment = self.at(datetime.fromisoformat(text).timestamp() - self._day.begin_s + lap_s)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class NewestSamples:
    """What the newest samples say: CPUs in use by host, and what each instance got of the CPU time that it wanted."""

    cpus: dict[str, int] = field(default_factory=dict)
    used: dict[str, dict[str, float]] = field(default_factory=dict)
    waited: dict[str, dict[str, float]] = field(default_factory=dict)

    def take(self, to: str, body: Line) -> None:
        """Look at what is posted."""
        if to == "announcements":
            self.cpus[body["host"]["id"]] = body["host"]["pcpus"]
            return
        for sample in body["samples"]:
            newest = {"cpu": self.used, "waiting": self.waited}.get(sample["metric"])
            if newest is not None and sample["instance"] is not None:
                newest.setdefault(sample["host"], {})[sample["instance"]] = sample["value"]

    def hosts(self) -> str:
        """How busy each host is."""
        busy = {host: sum(self.used.get(host, {}).values()) / cpus for host, cpus in sorted(self.cpus.items())}
        return "  ".join(f"{host} {percent:.0f} %" for host, percent in busy.items())

    def worst(self) -> str:
        """The most affected instance: the least CPU delivered, as a part of its demand."""
        got = []
        for host, there in self.used.items():
            for name, used in there.items():
                demanded = used + self.waited.get(host, {}).get(name, 0.0)
                if demanded > 1:  # percent of a CPU: of less it does not matter
                    got.append((used / demanded, name, host))
        if not got:
            return "no instance is busy"
        share, name, host = min(got)
        return f"most affected: {name} on {host}, CPU delivered {100 * share:.0f} % of demand"


class Feeder:
    """Posts lines to the service when it is time, in a thread of its own, and says now and then how things are."""

    def __init__(self, day: DayOfLines, clock: FastClock) -> None:
        self._day = day
        self._clock = clock
        self._seen = NewestSamples()
        self._stopping = threading.Event()
        self._shown_s = 0.0
        self._answer = ""
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.trouble = ""  # why there is no more to come

    def start(self, url: str) -> None:
        """Begin: the service answers at this URL."""
        self._service = Service.of(url, None, patience_s=_PATIENCE_S)
        self._shown_s = time.monotonic() - _TELL_EVERY_S / 2  # until then every host has reported
        self._thread.start()

    def stop(self) -> None:
        """End; harmless when it never began."""
        self._stopping.set()
        if self._thread.is_alive():
            self._service.client.close()  # who does not listen any more would be waited for
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            for to, body, is_late in self._posts():
                self._post(to, body)
                self._seen.take(to, body)
                if not is_late and time.monotonic() - self._shown_s >= _TELL_EVERY_S:
                    self._tell()
        except (AdvisorError, OSError, ValueError, KeyError, EOFError) as error:
            if getattr(error.__cause__, "kind", "") in {"refused", "connection", "protocol", "closed"}:
                return  # the service, which is this very process, is ending
            self.trouble = f"the feed of the demo ended: {error}"
        if not self._stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # nothing moves any more: the service ends as if a signal had ended it

    def _post(self, to: str, body: Line) -> Any:
        """Post it until the service, which is this very process, has taken it: a crowded machine takes its time."""
        while True:
            try:
                return self._service.post(to, body=body)
            except AdvisorError as error:
                cause = error.__cause__
                is_late = getattr(cause, "kind", "") == "timeout" or getattr(cause, "code", "") in _LATE
                if not is_late or self._stopping.wait(_AGAIN_S):
                    raise

    def _posts(self) -> Iterator[tuple[str, Line, bool]]:
        """What to post, each when it is time, and whether that was long ago; samples that are late go together."""
        late: list[Line] = []
        for at_s, to, body in self._lines():
            wait_s = at_s - self._clock.passed_s()
            if late and (to != "samples" or wait_s > 0 or len(late) > _MOST_SAMPLES):
                yield "samples", {"samples": late}, wait_s < -_LATE_S
                late = []
            if self._stopping.wait(max(wait_s, 0.0)):
                return
            if to == "samples" and wait_s <= 0:
                late += body["samples"]
            else:
                yield to, body, wait_s < -_LATE_S
        if late:
            yield "samples", {"samples": late}, False

    def _lines(self) -> Iterator[tuple[float, str, Line]]:
        """Second, route and body of each line, with times of the day; a recorded day comes again and again."""
        lap_s = 0.0
        while True:
            for line in self._day.lines():
                to, body = _TO[line["to"]], line["body"]
                if to == "announcements":
                    body["every_s"] = min(body["every_s"] * self._day.faster, _MOST_EVERY_S)
                for dated in (body,) if to == "announcements" else body["samples"]:
                    dated["time"] = self._clock.by_agent(dated["time"], lap_s)
                yield line["at"] + lap_s, to, body
            if not self._day.again:
                return
            say("The recorded day has ended and starts again as the next day.")
            lap_s += _DAY_S / self._day.faster

    def _tell(self) -> None:
        """Say how things are, and where a new VM should go now."""
        self._shown_s = time.monotonic()
        question = {"instance": NEW_VM, "limit": 1, "dry_run": True}
        best = self._post("placements", question)["candidates"][:1]
        answer = best[0]["host"] if best else "no host"
        before, self._answer = self._answer, answer
        instead = f" (before: {before})" if before not in {"", answer} else ""
        where = f"a new VM with {NEW_VM['vcpus']} vCPU should go to {answer}{instead}"
        say(f"{self._clock():%H:%M}  {self._seen.hosts()}; {self._seen.worst()}; {where}")


def serve(listen: str, *, live: bool) -> None:
    """Serve a cloud that lives until SIGTERM or Ctrl-C; nothing of it remains.

    With `live` it is made of containers on this machine where that is possible, else of a recorded day.
    """
    from api.cli.serve import run_service

    require_loopback(parse_listen(listen)[0])
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        """Until the service listens to signals: leave, and clean up on the way."""
        came.append(number)
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: it is to outlive its terminal
            signal.signal(number, end)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="cotenant-demo-"))
        day, clock = _chosen(stack, live=live)
        minutes = _DAY_S / day.faster / 60
        pace = f"A second is {day.faster / 60:g} minutes, so that a day passes in {minutes:g} minutes."
        words = f"Demonstration: {'a recorded day of ' if day.again else ''}{day.made}. {pace}"
        say(pace)
        feeder = Feeder(day, clock)
        stack.callback(feeder.stop)
        chosen = settings(
            listen=listen, database=f"sqlite:///{folder}/demo.sqlite3", state_dir=Path(folder), log_level="warning"
        )

        def begin(url: str) -> None:
            if came:  # Python drops what a signal raises while it runs a finalizer or a callback of C
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                feeder.start(url)

        run_service(chosen, shown=Demonstration(words, clock, begin))
        if feeder.trouble:
            raise AdvisorError(feeder.trouble)


def _chosen(stack: ExitStack, *, live: bool) -> tuple[DayOfLines, FastClock]:
    """The day that is shown, after a sentence about it, and its clock."""
    if live:
        live_day = stack.enter_context(_containers())
        if isinstance(live_day, DayOfLines):
            say(f"Real containers on this machine: {live_day.made}.")
            return live_day, FastClock(live_day, time.time() - live_day.begin_s)
        say(f"No containers can run here ({live_day}), so a recorded day is replayed.")
    day = recorded()
    say(f"The recording: {day.made}.")
    return day, FastClock(day, max(_SHOWN_AT_ONCE_H - day.begin_h, 0.0) * 3600 / day.faster)


def recorded(path: Path = RECORDING) -> DayOfLines:
    """The day in a file."""

    def lines() -> Iterator[Line]:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            next(file)
            yield from map(json.loads, file)

    with lzma.open(path, "rt", encoding="utf-8") as file:
        return DayOfLines.of(json.loads(file.readline()), lines, again=True)


@contextmanager
def _containers() -> Iterator[DayOfLines | str]:
    """Containers on this machine with agents, which end with the block; a sentence why there are none."""
    if sys.platform != "linux":
        yield "they need Linux"
        return
    if os.geteuid() != 0:
        yield "they need root"
        return
    if find_spec("lab") is None:
        yield "they need the lab (pip install cotenant-lab)"
        return
    command = [sys.executable, "-P", "-m", "lab.living_cloud", "--begin-hour", f"{_LIVE_BEGINS_H:g}"]
    with TemporaryFile("w+", errors="replace") as errors, subprocess.Popen(  # a pipe without a reader would fill up
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
        start_new_session=True,  # Ctrl-C on the terminal reaches the service, which then ends the containers
    ) as process:  # fmt: skip
        try:
            yield _day_of(process, errors)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _day_of(process: subprocess.Popen[str], errors: IO[str]) -> DayOfLines | str:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    first = process.stdout.readline()
    if not first:
        errors.seek(0)
        return errors.read().strip().removesuffix(".") or "they did not start"
    output = process.stdout
    return DayOfLines.of(json.loads(first), lambda: map(json.loads, output), again=False)
