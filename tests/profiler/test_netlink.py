"""What the kernel answers over netlink, and what is made of an answer that is none."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.backends import linux

VETH = struct.pack("=HH4s", 8, 1, b"veth")  # IFLA_INFO_KIND


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def _link(name: str, namespace: int | None, info: bytes = VETH) -> bytes:
    parts = [_attribute(3, name.encode() + b"\0"), _attribute(18, info)]
    if namespace is not None:
        parts.append(_attribute(37, struct.pack("=i", namespace)))
    return _message(16, bytes(16) + b"".join(parts))


DONE = _message(3, bytes(4))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the kernel says, packet by packet; then it is silent until the time is over."""
    packets: list[bytes] = []

    class Kernel:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Kernel:
            return self

        def __exit__(self, *_: object) -> None: ...
        def settimeout(self, seconds: float) -> None:
            assert seconds > 0

        def send(self, data: bytes) -> int:
            return len(data)

        def recv(self, _size: int) -> bytes:
            if not packets:
                raise TimeoutError(errno.ETIMEDOUT, "timed out")
            return packets.pop(0)

    monkeypatch.setattr(socket, "socket", Kernel)
    return packets


def test_only_pairs_that_end_in_another_namespace_count(answers: list[bytes]) -> None:
    dummy = struct.pack("=HH8s", 12, 1, b"macvlan\0")
    answers += [_link("veth1", 4) + _link("veth2", 4) + _link("eth0", None), _link("mac0", 5, dummy), DONE]
    assert linux.veths_by_namespace() == {"4": ["veth1", "veth2"]}


def test_a_refusal_is_an_error_of_the_system(answers: list[bytes]) -> None:
    answers.append(_message(2, struct.pack("=i", -errno.EPERM) + bytes(16)))
    with pytest.raises(PermissionError):
        linux.veths_by_namespace()


def test_a_silent_kernel_is_not_waited_for_for_ever(answers: list[bytes]) -> None:
    answers.append(_link("veth1", 4))
    with pytest.raises(TimeoutError):
        linux.veths_by_namespace()


def _queue(interface: int, parent: int, backlog: int, drops: int) -> bytes:
    stats = _attribute(3, struct.pack("=IIIII", 2, backlog, drops, 0, 0))
    return _message(
        36, struct.pack("=BxxxiIII", 0, interface, 0, parent, 1) + _attribute(1, b"htb\0") + _attribute(7, stats)
    )


def test_whole_queues_and_filters_of_an_interface_count_and_their_parts_do_not(
    answers: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "if_indextoname", {7: "veth1"}.__getitem__)
    root, ingress, part = 0xFFFFFFFF, 0xFFFFFFF1, 0x10001
    answers += [_queue(7, root, 3000, 5) + _queue(7, part, 3000, 5), _queue(7, ingress, 0, 2), DONE]
    assert linux.queues_by_interface() == {"veth1": [3000, 7]}


def test_our_own_namespace_has_no_number_or_one() -> None:
    assert linux.namespace_id(os.getpid()) >= -1
    assert all(names for names in linux.veths_by_namespace().values())


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError) as caught:
        linux.namespace_id(2**22 + 1)  # beyond the largest process number
    assert caught.value.errno == errno.ESRCH


@given(st.binary(max_size=200), st.integers(0, 80), st.binary(max_size=12))
def test_garbled_answers_end_in_numbers_names_or_an_error(data: bytes, at: int, patch: bytes) -> None:
    whole = _link("veth1", 4) + DONE
    for text in (data, whole[:at] + patch + whole[at + len(patch) :]):
        for _, body in linux._messages(text):
            for _, value in linux._attributes(body[16:]):
                assert len(value) < len(text)
