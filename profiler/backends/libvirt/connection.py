"""The only module that calls libvirt: a read-only connection that reconnects and cannot block its caller."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEFAULT_URI = "qemu:///system"
TIMEOUT_S = 3.0  # for one answer; libvirtd answers for a hundred guests in a tenth of that
_MISSING = "the Python library of libvirt is missing: apt-get install python3-libvirt, or pip install libvirt-python"


class Worker:
    """Runs calls that may hang in one thread; a caller waits no longer than the time limit."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises; TimeoutError when it, or an earlier call that hung, is not done in time.

        Only one call runs at a time: while an earlier one hangs no new one begins, so that a libvirtd that hangs for a
        day costs one thread.
        """
        deadline = time.monotonic() + self._timeout_s
        if self._busy:
            self._answer(deadline)  # the late answer to an earlier call
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="libvirt", daemon=True)
            self._thread.start()
        self._busy = True
        self._work.put(work)
        value, error = self._answer(deadline)
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Let the thread end when it is done; it does not keep the process alive if it never is."""
        if self._thread is not None:
            self._work.put(None)
            self._thread = None

    def _answer(self, deadline: float) -> tuple[Any, BaseException | None]:
        try:
            answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(errno.ETIMEDOUT, f"libvirt gave no answer in {self._timeout_s:g} s") from None
        self._busy = False
        return answer

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                self._answers.put((work(), None))
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                self._answers.put((None, error))


class LibvirtConnection:
    """libvirt's answers as structures that JSON can hold; every method raises OSError, which TimeoutError is too.

    Without `uri` it is LIBVIRT_DEFAULT_URI as for virsh, else the system's QEMU driver.
    """

    def __init__(self, uri: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.uri = uri or os.environ.get("LIBVIRT_DEFAULT_URI") or DEFAULT_URI
        self._worker = Worker(timeout_s)
        self._libvirt: Any = None
        self._open: Any = None

    def version(self) -> int:
        """libvirtd's version, 1,000,000 · major + 1,000 · minor + release."""
        return int(self._ask(lambda connection: connection.getLibVersion()))

    def stats(self, *, drives: bool = True) -> list[list[Any]]:
        """[id, uuid, name, statistics] of every active domain: one call, however many domains there are.

        NOWAIT: a domain that is busy (migration, a hung monitor) leaves values out instead of delaying all others.
        Only what is needed is asked for. For everything but state and interfaces libvirtd asks each QEMU, which
        takes 1 to 2 ms per domain and group; with QEMU 7.1 and later, vcpu adds dozens of KVM's fields.
        """
        return self._bulk("STATE", "INTERFACE", *(["BLOCK"] if drives else []))

    def all_stats(self) -> list[list[Any]]:
        """As `stats`, with drives, balloons and hardware counters (perf events, cache and bandwidth monitors).

        libvirtd asks no QEMU for the hardware counters, and reads them only of domains whose XML asks for them.
        """
        return self._bulk("STATE", "INTERFACE", "BLOCK", "PERF", "CPU_TOTAL", "MEMORY", "BALLOON")

    def domains(self) -> list[list[Any]]:
        """As `stats`, but only states, for which libvirtd does not query QEMU."""
        return self._bulk("STATE")

    def vcpu_stats(self) -> list[list[Any]]:
        """As `stats`, of the vCPUs: for domains whose threads cannot be seen."""
        return self._bulk("STATE", "VCPU")

    def _bulk(self, *groups: str) -> list[list[Any]]:
        def ask(connection: Any) -> list[list[Any]]:
            constants = vars(self._libvirt)
            wanted = sum(constants.get(f"VIR_DOMAIN_STATS_{group}", 0) for group in groups)  # MEMORY: since 6.0
            flags = constants["VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE"]
            flags |= constants.get("VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT", 0)  # since libvirt 4.5
            answer = connection.getAllDomainStats(wanted, flags)
            return [[domain.ID(), domain.UUIDString(), domain.name(), stats] for domain, stats in answer]

        return self._ask(ask)

    def xml(self, uuid: str) -> str:
        """The live XML of a domain; ENOENT when it is gone."""
        return str(self._ask(lambda connection: connection.lookupByUUIDString(uuid).XMLDesc(0)))

    def scheduler(self, uuid: str) -> dict[str, int]:
        """cpu_shares and the periods and quotas of a domain's control groups."""
        flag = 1  # VIR_DOMAIN_AFFECT_LIVE
        return dict(self._ask(lambda connection: connection.lookupByUUIDString(uuid).schedulerParametersFlags(flag)))

    def close(self) -> None:
        """Close the connection; harmless when called twice, and while libvirtd hangs."""
        with contextlib.suppress(OSError):
            if self._open is not None:
                self._worker.run(self._forget)
        self._worker.stop()

    def _ask(self, question: Callable[[Any], T]) -> T:
        return self._worker.run(lambda: self._answer(question))

    def _answer(self, question: Callable[[Any], T]) -> T:
        """In the worker's thread: ask, and once more over a new connection where the old one was lost."""
        if self._libvirt is None:
            self._libvirt = _library()
        was_open = self._open is not None
        try:
            return question(self._connected())
        except self._libvirt.libvirtError as error:
            if self._alive():
                raise self._as_os_error(error) from None
            self._forget()
            if not was_open:
                raise self._as_os_error(error) from None
        try:
            return question(self._connected())
        except self._libvirt.libvirtError as error:
            self._forget()
            raise self._as_os_error(error) from None

    def _connected(self) -> Any:
        if self._open is None:
            self._open = self._libvirt.openReadOnly(self.uri)
        return self._open

    def _alive(self) -> bool:
        try:
            return self._open is not None and bool(self._open.isAlive())
        except self._libvirt.libvirtError:
            return False

    def _forget(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            with contextlib.suppress(self._libvirt.libvirtError):
                connection.close()

    def _as_os_error(self, error: Any) -> OSError:
        code = error.get_error_code()
        if code == self._libvirt.VIR_ERR_NO_DOMAIN:
            return OSError(errno.ENOENT, "the domain is gone")
        denied = code in (self._libvirt.VIR_ERR_AUTH_FAILED, self._libvirt.VIR_ERR_ACCESS_DENIED)
        return OSError(errno.EACCES if denied else errno.EIO, f"libvirt: {error.get_error_message() or error}")


def _library() -> Any:
    """The optional library, made not to print its errors: they are raised as well."""
    try:
        library = importlib.import_module("libvirt")
    except ImportError:
        raise OSError(errno.ENOPKG, _MISSING) from None
    library.registerErrorHandler(_silent, None)
    return library


def _silent(_context: object, _error: object) -> None:
    """Print nothing."""
