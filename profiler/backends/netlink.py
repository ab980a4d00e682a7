"""Asks the kernel over netlink for the peers of host interfaces, and for backlog and drops of their queues."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/net_namespace.h, linux/pkt_sched.h, linux/gen_stats.h
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_GETLINK, _GETNSID = 18, 90
_NAME, _LINKINFO, _EXT_MASK, _LINK_NETNSID = 3, 18, 29, 37
_INFO_KIND = 1
_NETNSA_NSID, _NETNSA_PID = 1, 2
_SKIP_STATS = 1 << 3
_GETQDISC = 38
_STATS2, _STATS_QUEUE = 7, 3
_WHOLE = (0xFFFFFFFF, 0xFFFFFFF1)  # TC_H_ROOT, TC_H_INGRESS: they count what all queues and filters below them do
_HEADER, _ATTRIBUTE, _LINK = struct.Struct("=IHHII"), struct.Struct("=HH"), struct.Struct("=BxHiII")
_QUEUE, _QUEUE_STATS = struct.Struct("=BxxxiIII"), struct.Struct("=IIIII")  # tcmsg, gnet_stats_queue
_NESTED_BITS = 0x3FFF  # the upper two bits of an attribute's type say how it is nested, linux/netlink.h
_RECEIVE = 1 << 17
_TIMEOUT_S = 1.0


def veths_by_namespace() -> dict[str, list[str]]:
    """Names of this namespace's veth interfaces by the id, as text, of the namespace that their other end is in.

    Raises OSError.
    """
    veths: dict[str, list[str]] = {}
    mask = _ATTRIBUTE.pack(8, _EXT_MASK) + struct.pack("=I", _SKIP_STATS)
    for body in _ask(_GETLINK, _DUMP, _LINK.pack(0, 0, 0, 0, 0) + mask):
        attributes = dict(_attributes(body[_LINK.size :]))
        kind = dict(_attributes(attributes.get(_LINKINFO, b""))).get(_INFO_KIND, b"")
        if kind.rstrip(b"\0") == b"veth" and _LINK_NETNSID in attributes and _NAME in attributes:
            name = attributes[_NAME].rstrip(b"\0").decode("utf-8", "replace")
            veths.setdefault(str(_number(attributes[_LINK_NETNSID])), []).append(name)
    return veths


def queues_by_interface() -> dict[str, list[int]]:
    """Bytes that wait in the queue of each interface of this namespace, and packets that its queues and filters dropped
    since they were made, modulo 2^32: those for sending, and those that police what comes in.

    Raises OSError.
    """
    by_index: dict[int, list[int]] = {}
    for body in _ask(_GETQDISC, _DUMP, _QUEUE.pack(0, 0, 0, 0, 0)):
        if len(body) < _QUEUE.size:
            raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
        _, interface, _, parent, _ = _QUEUE.unpack_from(body)
        stats = dict(_attributes(dict(_attributes(body[_QUEUE.size :])).get(_STATS2, b""))).get(_STATS_QUEUE, b"")
        if parent in _WHOLE and len(stats) >= _QUEUE_STATS.size:
            _, waiting, dropped, _, _ = _QUEUE_STATS.unpack_from(stats)
            before = by_index.get(interface, [0, 0])
            by_index[interface] = [before[0] + waiting, before[1] + dropped]
    names: dict[str, list[int]] = {}
    for interface, counts in by_index.items():
        with suppress(OSError):  # it is gone
            names[socket.if_indextoname(interface)] = counts
    return names


def namespace_id(process: int) -> int:
    """The id that this namespace has for the network namespace of a process; -1 = none. Raises OSError."""
    pid = _ATTRIBUTE.pack(8, _NETNSA_PID) + struct.pack("=I", process)
    for body in _ask(_GETNSID, 0, bytes(4) + pid):
        return _number(dict(_attributes(body[4:])).get(_NETNSA_NSID, b"\xff\xff\xff\xff"))
    return -1


def _number(data: bytes) -> int:
    if len(data) != 4:
        raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
    return int(struct.unpack("=i", data)[0])


def _ask(kind: int, flags: int, payload: bytes) -> Iterator[bytes]:
    """Bodies of all messages that answer one request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(payload), kind, _REQUEST | flags, 1, 0) + payload)
        expects_more = True
        while expects_more:
            expects_more = bool(flags & _DUMP)
            for type_, body in _messages(kernel.recv(_RECEIVE)):
                if type_ == _DONE:
                    expects_more = False
                elif type_ == _ERROR:
                    number = -_number(body[:4])
                    raise OSError(number, os.strerror(number))
                else:
                    yield body


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, position)
        if length < _HEADER.size:
            return
        yield kind, data[position + _HEADER.size : position + length]
        position += length + 3 & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _NESTED_BITS, data[position + _ATTRIBUTE.size : position + length]
        position += length + 3 & ~3
