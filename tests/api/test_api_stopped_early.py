"""`cotenant serve` that is asked to stop: it ends, whichever step of its start the signal finds it at."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from advisor.settings import Settings
from api import serving
from tests.servers.forked import Forked

# Each sends SIGTERM from within the step that is named, so that no test depends on when a signal happens to arrive.
BEGIN = """
import os, signal, socket, sys
from pathlib import Path
from advisor.settings import Settings
from api import serving

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=folder)
    listener = socket.create_server(("127.0.0.1", 0))
    heard = lambda: print("heard")
"""
WORKERS = """
    start, started, wanted = serving._Workers._start, [], int(sys.argv[2])

    def start_and_stop(self):
        started.append(start(self))
        if len(started) == wanted:
            stop()
        return started[-1]

    serving._Workers._start = start_and_stop
    code = serving.serve_with_workers(settings, listener, 3, heard)
    print(len(started), [one.process.is_alive() for one in started])
    sys.exit(code)
"""
ALONE = """
    run = serving.Server.run

    def stop_and_run(self, sockets):
        stop()
        run(self, sockets)

    serving.Server.run = stop_and_run
    serving.serve(settings, listener, heard)
"""
REPLACED = """
    replace = serving._Workers._replace_the_dead
    start, started = serving._Workers._start, []

    def start_and_stop(self):
        started.append(start(self))
        if len(started) == 3:
            stop()
        return started[-1]

    def kill_and_replace(self):
        self._workers[0].process.kill()
        self._workers[0].process.join()
        replace(self)

    serving._Workers._start = start_and_stop
    serving._Workers._replace_the_dead = kill_and_replace
    code = serving.serve_with_workers(settings, listener, 2, heard)
    print(len(started), [one.process.is_alive() for one in started])
    sys.exit(code)
"""


def run(steps: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a service whose steps are these, and what it prints; TimeoutExpired where it does not end."""
    program = folder / "serve.py"
    program.write_text(BEGIN + steps, encoding="utf-8")
    process = Forked(program, folder, *arguments)
    try:
        printed = process.communicate(timeout=120)
        return process.wait(), printed
    finally:
        process.kill()  # its workers end with it


@pytest.mark.parametrize("wanted", [1, 3])
def test_workers_that_are_being_started_when_it_is_asked_to_stop_end_and_no_more_are_started(
    tmp_path: Path, wanted: int
) -> None:
    assert run(WORKERS, tmp_path, str(wanted)) == (0, f"{wanted} {[False] * wanted}\n")


def test_a_worker_that_is_being_replaced_when_it_is_asked_to_stop_ends(tmp_path: Path) -> None:
    assert run(REPLACED, tmp_path) == (0, "heard\n3 [False, False, False]\n")


def test_a_process_that_is_asked_to_stop_just_before_it_listens_ends(tmp_path: Path) -> None:
    assert run(ALONE, tmp_path)[0] == 0


def test_a_worker_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    multiprocessing = MagicMock()
    process = multiprocessing.Process.return_value
    process.pid = 1
    process.is_alive.side_effect = lambda: not process.kill.called
    monkeypatch.setattr("multiprocessing.get_context", lambda _: multiprocessing)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.socket() as listener:
        workers = serving._Workers(Settings(), listener, 1)
        workers._stop()
        assert workers.run(lambda: None) == 0
    process.terminate.assert_called()
    assert "worker 1 did not end; it is killed" in caplog.text
    assert not process.is_alive()
