"""QEMU's own protocol: what is asked, and what becomes of answers that are wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.errors import RunError
from lab.guests.qmp import Qmp


@contextmanager
def _qmp(*answers: bytes) -> Iterator[tuple[Qmp, list[bytes]]]:
    """A QEMU that greets and then gives these answers in turn, whatever it is asked; and what it was asked."""
    ours, theirs = socket.socketpair()
    asked: list[bytes] = []

    def serve() -> None:
        with theirs:
            theirs.sendall(b'{"QMP": {"version": {}, "capabilities": []}}\n')
            for answer in answers:
                asked.append(theirs.recv(4096))
                theirs.sendall(answer + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    qmp = Qmp(ours, "shop")
    yield qmp, asked
    thread.join()
    qmp.close()


def test_vcpu_threads_come_in_the_order_of_the_vcpus() -> None:
    cpus = b'{"return": [{"cpu-index": 1, "thread-id": 71}, {"cpu-index": 0, "thread-id": 70}]}'
    with _qmp(b'{"return": {}}', b'{"event": "RESUME"}\n' + cpus) as (qmp, asked):
        assert qmp.vcpu_threads() == [70, 71]
    assert [b"qmp_capabilities" in asked[0], b"query-cpus-fast" in asked[1]] == [True, True]


@pytest.mark.parametrize("answer", [b'{"error": {"desc": "busy"}}', b"no json", b"[]", b'{"return": [{}]}'])
def test_what_qemu_says_wrong_is_an_error_in_one_sentence(answer: bytes) -> None:
    with _qmp(b'{"return": {}}', answer) as (qmp, _), pytest.raises(RunError, match="QEMU of guest shop does not"):
        qmp.vcpu_threads()


def test_a_qemu_that_is_gone_is_an_error() -> None:
    with _qmp(b'{"return": {}}') as (qmp, _), pytest.raises(RunError, match="does not answer stop"):
        qmp.do("stop")
