"""The agent as a process: kill -9 loses nothing that was spooled; it ends when asked; wrong settings are a sentence."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.processes import wait_until
from profiler.agent.spool import decode
from profiler.cli import main
from tests.profiler.api_double import Double, Reply, serving

RUN = [sys.executable, "-W", "error", "-m", "profiler.cli", "run"]
FAST = ["--every", "0.1", "--window", "1", "--backend", "lxc"]


def start(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[float, str, str]:
    """Tell it to end; seconds it took, standard output and error."""
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    return time.monotonic() - begun, out, err


def wait_for(condition: Callable[[], object], what: str) -> None:
    assert wait_until(lambda: bool(condition()), 30), what


def keys_on_disk(spool: Path) -> set[tuple[Any, ...]]:
    found: set[tuple[Any, ...]] = set()
    for path in spool.glob("*.json.gz"):
        try:
            samples = decode(path.read_bytes()).samples()
        except FileNotFoundError:  # acknowledged meanwhile
            continue
        found |= {tuple(sample[name] for name in ("host", "instance", "scope", "metric", "time")) for sample in samples}
    return found


class _Watch(threading.Thread):
    """Remembers every sample that was ever seen in the spool."""

    def __init__(self, spool: Path) -> None:
        super().__init__(daemon=True)
        self._spool = spool
        self._end = threading.Event()
        self.seen: set[tuple[Any, ...]] = set()
        self.start()

    def run(self) -> None:
        while not self._end.wait(0.02):
            self.seen |= keys_on_disk(self._spool)

    def stop(self) -> set[tuple[Any, ...]]:
        self._end.set()
        self.join()
        return self.seen


def _moody(double: Double, chance: random.Random) -> None:
    """Fail in every way there is, with and without having stored the samples."""
    moods = [Reply(), Reply(), Reply(500, stored=False), Reply(500), Reply(None), Reply(None, stored=False),
             Reply(body=b"<html>"), Reply(503, stored=False, headers={"Retry-After": "1"})]  # fmt: skip
    double.decide = lambda _samples: chance.choice(moods)


@pytest.mark.measured
def test_kill_9_at_any_moment_loses_nothing_that_was_spooled_and_counts_nothing_twice(tmp_path: Path) -> None:
    spool, chance = tmp_path / "spool", random.Random(3)
    with serving() as double:
        arguments: list[str | Path] = [*FAST, "--no-exporter", "--push", double.url, "--spool", spool]
        _moody(double, chance)
        watch = _Watch(spool)
        for _ in range(6):
            process = start(*arguments)
            wait_for((spool / "lock").exists, "the agent did not start")
            time.sleep(chance.uniform(0.8, 3))
            process.kill()
            process.communicate(timeout=120)
        double.decide = lambda _samples: Reply()
        process = start(*arguments)
        wait_for(lambda: not list(spool.glob("*.json.gz")) and double.kept, "the spool was not emptied")
        _, _, err = finish(process)
        seen = watch.stop()
        sent = sum(map(len, double.requests))
    assert "Traceback" not in err
    assert len(seen) > 20
    assert seen <= set(double.kept)
    assert sent > len(double.kept), "the server was moody enough to be sent some twice"


@pytest.mark.parametrize(("pushed", "window_s"), [(True, 60.0), (False, 10.0)])
def test_windows_that_are_pushed_last_a_minute(tmp_path: Path, pushed: bool, window_s: float) -> None:
    to = ["--no-exporter", "--push", "http://127.0.0.1:1", "--spool", str(tmp_path)]
    arguments = to if pushed else ["--listen", "127.0.0.1:0"]
    process = start("--backend", "lxc", "--seconds", "1", "--json", *arguments)
    _, err = process.communicate(timeout=60)
    assert json.loads(err.splitlines()[0])["window_s"] == window_s


@pytest.mark.measured
def test_what_is_measured_without_a_server_arrives_when_there_is_one(tmp_path: Path) -> None:
    with socket.socket() as unreachable:
        unreachable.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unreachable.getsockname()[1]}"
        process = start(*FAST, "--no-exporter", "--push", url, "--spool", tmp_path)
        wait_for(lambda: len(list(tmp_path.glob("*.json.gz"))) >= 2, "no window was spooled")
        seconds, _, err = finish(process)
    assert process.returncode == 0
    assert seconds < 2
    assert "kind=refused" in err
    waiting = keys_on_disk(tmp_path)
    with serving() as double:
        process = start(*FAST, "--no-exporter", "--push", double.url, "--spool", tmp_path)
        wait_for(lambda: waiting <= set(double.kept), "what was spooled did not arrive")
        finish(process)


def test_the_token_from_the_environment_is_sent_and_shown_nowhere(tmp_path: Path) -> None:
    with serving() as double:
        process = start(
            *FAST, "--no-exporter", "--push", double.url, "--spool", tmp_path, "--once-window", "--json",
            COTENANT_TOKEN="tok-of-ghost",
        )  # fmt: skip
        out, err = process.communicate(timeout=120)
        again = start(*FAST, "--no-exporter", "--push", double.url, "--spool", tmp_path, COTENANT_TOKEN="tok-of-ghost")
        wait_for(lambda: double.headers, "nothing was sent")
        _, _, more = finish(again)
    assert double.headers[0]["Authorization"] == "Bearer tok-of-ghost"
    assert "tok-of-ghost" not in out + err + more
    assert "tok-of-ghost" not in "".join(path.read_bytes().hex() for path in tmp_path.iterdir())


@pytest.mark.measured
def test_it_exports_what_it_measures_and_ends_within_two_seconds(tmp_path: Path) -> None:
    process = start(*FAST, "--listen", "127.0.0.1:0", "--json")
    assert process.stderr is not None
    hello = json.loads(process.stderr.readline())
    assert (hello["event"], hello["backend"], hello["push"]) == ("start", "lxc", "off")

    def page() -> str:
        with urllib.request.urlopen(hello["export"], timeout=60) as answer:
            return str(answer.read().decode())

    wait_for(lambda: 'statistic="p95"' in page(), "no window was exported")
    text = page()
    assert "cotenant_busy_seconds_total{" in text
    assert "cotenant_profiler_readings_total" in text
    seconds, out, _ = finish(process)
    assert (process.returncode, seconds < 2) == (0, True)
    summary = json.loads(out)
    assert summary["readings"] > 5
    assert summary["windows"] >= 1


@pytest.mark.measured
def test_an_agent_that_was_stopped_for_a_while_goes_on_without_a_wrong_rate(tmp_path: Path) -> None:
    process = start(*FAST, "--listen", "127.0.0.1:0", "--json")
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(1.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    _, out, _ = finish(process)
    summary = json.loads(out)
    assert summary["dropped"]["late"] >= 15
    assert summary["dropped"]["gap"] == 1
    assert summary["readings"] < 40


def test_it_imports_nothing_that_a_host_does_not_need(tmp_path: Path) -> None:
    program = (
        "import json, sys; from profiler.cli import main\n"
        "code = main(['run', '--seconds', '0.3', '--every', '0.1', '--backend', 'lxc', *json.loads(sys.argv[1])])\n"
        "print(code, sorted(set(sys.modules) & set(sys.argv[2:])))"
    )
    always = ["rich", "yaml", "asyncio", "numpy", "lab"]
    for parts, unneeded in (
        (["--listen", "127.0.0.1:0"], ["profiler.agent.push", "profiler.agent.spool"]),
        (["--no-exporter", "--push", "http://127.0.0.1:1", "--spool", str(tmp_path)], ["prometheus_client"]),
    ):
        command = [sys.executable, "-c", program, json.dumps(parts), *always, *unneeded]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout == "0 []\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--no-exporter"], 2, "would reach no reader"),
        (["--push", "ftp://x"], 2, "is not a URL"),
        (["--push", "http://u:p@x"], 2, "--token-file"),
        (["--every", "0.01"], 2, "not between 0.1 and 60 seconds"),
        (["--every", "soon"], 2, "'soon' is not between 0.1 and 60 seconds"),
        (["--window", "301"], 2, "not between 1 and 300"),
        (["--every", "20", "--window", "10"], 2, "at least as long"),
        (["--listen", "nowhere"], 2, "ADDRESS:PORT"),
        (["--listen", "127.0.0.1:99999"], 2, "ADDRESS:PORT"),
        (["--listen", "203.0.113.7:9405"], 1, "cannot listen"),
        (["--no-exporter", "--push", "http://127.0.0.1:1", "--spool", "/proc/nowhere"], 1, "cannot be written"),
        (["--no-exporter", "--push", "http://127.0.0.1:1", "--token-file", "/nowhere/token"], 1, "token file"),
        (["--no-exporter", "--push", "http://127.0.0.1:1", "--token-file", "/dev/null"], 1, "others may change it"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_setting_is_one_sentence(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(["run", "--backend", "lxc", *arguments])
    except SystemExit as exit_:
        ended = int(str(exit_.code))
    err = capsys.readouterr().err
    assert ended == code
    assert says in err
    assert err.splitlines()[-1].startswith("cotenant-profiler")
    assert "Traceback" not in err
