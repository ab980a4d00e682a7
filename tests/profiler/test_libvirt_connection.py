"""The connection to libvirt against a library that fails, hangs and comes back; and the thread that waits for it."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.backends import BackendError
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import DEFAULT_URI, LibvirtConnection, Worker

SOON_S = 0.2  # for what hangs; what answers has the time that it takes beside other work


class LibvirtError(Exception):
    """As libvirt.libvirtError."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self._code, self._message = code, message

    def get_error_code(self) -> int:
        return self._code

    def get_error_message(self) -> str:
        return self._message


class Library:
    """Stands for the module libvirt: `broken` connections are dead, `opening` may raise or hang."""

    VIR_ERR_NO_DOMAIN, VIR_ERR_AUTH_FAILED, VIR_ERR_ACCESS_DENIED = 42, 45, 88
    libvirtError = LibvirtError  # noqa: N815 - its name there

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed = 0
        self.broken = False
        self.error: LibvirtError | None = None
        self.opening: Any = lambda: None
        self.VIR_DOMAIN_STATS_STATE = 1
        self.VIR_DOMAIN_STATS_VCPU, self.VIR_DOMAIN_STATS_INTERFACE, self.VIR_DOMAIN_STATS_BLOCK = 8, 16, 32
        self.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE = 1
        self.asked: list[tuple[int, int]] = []

    def registerErrorHandler(self, handler: Any, context: object) -> None:  # noqa: N802 - its name there
        handler(context, ())

    def openReadOnly(self, uri: str) -> Library:  # noqa: N802
        self.opening()
        self.opened.append(uri)
        self.broken = False
        return self

    def isAlive(self) -> int:  # noqa: N802
        return 0 if self.broken else 1

    def close(self) -> None:
        self.closed += 1

    def getLibVersion(self) -> int:  # noqa: N802
        if self.broken:
            raise LibvirtError(38, "client socket is closed")
        if self.error is not None:
            raise self.error
        return 9_000_000

    def getAllDomainStats(self, groups: int, flags: int) -> list[tuple[Any, dict[str, int]]]:  # noqa: N802
        self.asked.append((groups, flags))
        domain = SimpleNamespace(ID=lambda: 3, UUIDString=lambda: "u", name=lambda: "n")
        return [(domain, {"state.state": 1})]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "libvirt", made)
    return made


@pytest.fixture
def connection(library: Library) -> Any:
    made = LibvirtConnection("test:///", timeout_s=30.0)
    yield made
    made.close()


@pytest.fixture
def impatient(library: Library) -> Any:
    made = LibvirtConnection("test:///", timeout_s=SOON_S)
    yield made
    made.close()


def test_one_connection_serves_all_questions(library: Library, connection: LibvirtConnection) -> None:
    assert connection.version() == connection.version() == 9_000_000
    assert library.opened == ["test:///"]


def test_all_domains_are_asked_for_in_one_call_of_few_groups(library: Library, connection: LibvirtConnection) -> None:
    assert connection.stats() == [[3, "u", "n", {"state.state": 1}]]
    connection.stats(drives=False)
    assert library.asked == [(1 + 16 + 32, 1), (1 + 16, 1)]


def test_a_lost_connection_is_opened_anew_at_once(library: Library, connection: LibvirtConnection) -> None:
    connection.version()
    library.broken = True
    assert connection.version() == 9_000_000
    assert (len(library.opened), library.closed) == (2, 1)


def test_a_daemon_that_stays_away_is_an_error_until_it_is_back(library: Library, connection: LibvirtConnection) -> None:
    connection.version()
    library.broken = True

    def refuse() -> None:
        raise LibvirtError(38, "Failed to connect socket")

    library.opening = refuse
    for _ in range(2):
        with pytest.raises(OSError, match="Failed to connect socket"):
            connection.version()
    library.opening = lambda: None
    assert connection.version() == 9_000_000


@pytest.mark.parametrize(("code", "error"), [(42, FileNotFoundError), (45, PermissionError), (88, PermissionError)])
def test_errors_of_libvirt_become_those_of_the_system(
    library: Library, connection: LibvirtConnection, code: int, error: type[OSError]
) -> None:
    library.error = LibvirtError(code, "said so")
    with pytest.raises(error):
        connection.version()
    assert len(library.opened) == 1


@pytest.mark.measured
def test_a_daemon_that_hangs_is_given_up_in_time_and_asked_again_when_it_is_back(
    library: Library, impatient: LibvirtConnection
) -> None:
    freed = threading.Event()
    library.opening = freed.wait
    before = set(threading.enumerate())
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="gave no answer"):
            impatient.version()
        assert time.monotonic() - began < 5 * SOON_S
    assert len(set(threading.enumerate()) - before) == 1
    freed.set()
    assert impatient.version() == 9_000_000
    assert len(library.opened) == 1


def test_closing_is_harmless_twice_and_while_the_daemon_hangs(library: Library) -> None:
    freed = threading.Event()
    library.opening = freed.wait
    connection = LibvirtConnection("test:///", timeout_s=SOON_S)
    with pytest.raises(TimeoutError):
        connection.version()
    connection.close()
    connection.close()
    freed.set()


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)  # makes importing it fail
    with pytest.raises(BackendError, match=r"apt-get install python3-libvirt, or pip install libvirt-python"):
        LibvirtBackend(host="h")


def test_the_daemon_is_the_one_that_virsh_would_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    assert LibvirtConnection().uri == DEFAULT_URI
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu:///session")
    assert LibvirtConnection().uri == "qemu:///session"


def test_a_late_answer_is_not_taken_for_that_of_the_next_question() -> None:
    worker = Worker(SOON_S)
    freed = threading.Event()

    def slow() -> str:
        freed.wait()
        return "old"

    with pytest.raises(TimeoutError):
        worker.run(slow)
    freed.set()
    worker._timeout_s = 30.0  # what follows is answered
    assert worker.run(lambda: "new") == "new"
    worker.stop()
