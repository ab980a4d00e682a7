"""ICMP echo of our own, over an unprivileged ping socket or, as root, a raw one; answers carry the kernel's time.

Sources: RFC 792, RFC 4443; icmp(7), ip(7) (IP_RECVERR), ipv6(7), and the kernel's net/ipv4/ping.c.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from profiler.probes.base import ProbeError

Kind = Literal["reply", "exceeded", "unreachable"]

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the control message has the same number
_IP_RECVERR, _IPV6_RECVERR = 11, 25  # linux/in.h, linux/in6.h
_ECHO = struct.Struct("!BBHHH")  # type, code, checksum, id, sequence
_EXTENDED = struct.Struct("=IBBBBII")  # struct sock_extended_err: errno, origin, type, code, pad, info, data
_FROM_ICMP = (2, 3)  # SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6
_PAYLOAD = bytes(range(48))  # with the header 56 bytes: what ping sends, without its time stamp
_LARGEST = 2048


@dataclass(frozen=True, slots=True)
class IcmpAnswer:
    """The answer to a probe: who sent it, and when the kernel received it (ns, real-time clock; None = unknown)."""

    sequence: int
    kind: Kind
    sender: str
    kernel_ns: int | None


@dataclass(frozen=True, slots=True)
class _Version:
    """The numbers of one version of IP."""

    protocol: int
    request: int
    reply: int
    exceeded: int
    unreachable: int
    level: int
    time_to_live: int
    receive_errors: int


_V4 = _Version(socket.IPPROTO_ICMP, 8, 0, 11, 3, socket.IPPROTO_IP, socket.IP_TTL, _IP_RECVERR)
_V6 = _Version(
    socket.IPPROTO_ICMPV6, 128, 129, 3, 1, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _IPV6_RECVERR
)  # fmt: skip


class Icmp:
    """Sends echo requests to one address and receives what comes back for them."""

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        """ProbeError when this host allows neither kind of socket."""
        self._version = _V6 if family == socket.AF_INET6 else _V4
        self._address = address
        self._id = os.getpid() & 0xFFFF
        try:
            self.socket = socket.socket(family, socket.SOCK_DGRAM, self._version.protocol)
            self.how = "ping socket"
        except OSError:
            try:
                self.socket = socket.socket(family, socket.SOCK_RAW, self._version.protocol)
                self.how = "raw socket"
            except OSError:
                raise ProbeError(
                    "ICMP is not allowed here: run as root, set net.ipv4.ping_group_range, or use --udp"
                ) from None
        self._raw = self.how == "raw socket"
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if not self._raw:
            self.socket.setsockopt(self._version.level, self._version.receive_errors, 1)
        self.socket.setblocking(False)

    def close(self) -> None:
        self.socket.close()

    def send(self, sequence: int, hops: int | None = None) -> None:
        """Send one request; with `hops`, the router at that distance drops it and says so.

        Raises OSError when the kernel refuses, which it may for a while (no route, full queue).
        """
        version = self._version
        if hops is not None:
            self.socket.setsockopt(version.level, version.time_to_live, hops)
        bare = _ECHO.pack(version.request, 0, 0, self._id, sequence & 0xFFFF) + _PAYLOAD
        if self._raw and version is _V4:  # for ping sockets and for IPv6 the kernel fills it in
            bare = bare[:2] + struct.pack("!H", checksum(bare)) + bare[4:]
        try:
            self.socket.sendto(bare, self._address)
        except OSError:
            if self._raw:
                raise
            self.socket.sendto(bare, self._address)  # it reported an earlier probe's error, which is cleared now

    def receive(self) -> Iterator[IcmpAnswer]:
        """All answers that can be read without waiting; what is malformed, or not for this process, is skipped."""
        for flags in (0,) if self._raw else (0, socket.MSG_ERRQUEUE):
            while True:
                try:
                    data, control, _, sender = self.socket.recvmsg(_LARGEST, 512, flags)
                except BlockingIOError:
                    break
                except OSError:  # the error of a probe, which the error queue holds in full
                    continue
                if flags:
                    answer = self._from_queue(data, control)
                elif self._raw:
                    answer = parse_raw(data, str(sender[0]), kernel_time(control), self._id, self._version)
                else:
                    answer = self._from_ping(data, str(sender[0]), kernel_time(control))
                if answer is not None:
                    yield answer

    def _from_ping(self, data: bytes, sender: str, kernel_ns: int | None) -> IcmpAnswer | None:
        """A ping socket only gets replies to what it sent."""
        if len(data) < _ECHO.size:
            return None
        kind, _, _, _, sequence = _ECHO.unpack_from(data)
        return IcmpAnswer(sequence, "reply", sender, kernel_ns) if kind == self._version.reply else None

    def _from_queue(self, data: bytes, control: list[tuple[int, int, bytes]]) -> IcmpAnswer | None:
        """An error about a probe: `data` is the probe; the control message names sender and type of the error."""
        for level, kind, value in control:
            if (level, kind) != (self._version.level, self._version.receive_errors) or len(value) < _EXTENDED.size:
                continue
            _, origin, kind_of_error, _, _, _, _ = _EXTENDED.unpack_from(value)
            name = _error_name(kind_of_error, self._version)
            if origin not in _FROM_ICMP or name is None or len(data) < _ECHO.size:
                return None
            sequence = _ECHO.unpack_from(data)[4]
            return IcmpAnswer(sequence, name, _address(value[_EXTENDED.size :]), kernel_time(control))
        return None


def _error_name(kind: int, version: _Version) -> Kind | None:
    """The name of an ICMP error's type; None for others."""
    return {version.exceeded: "exceeded", version.unreachable: "unreachable"}.get(kind)  # type: ignore[return-value]


def parse_raw(
    data: bytes, sender: str, kernel_ns: int | None, identity: int, version: _Version = _V4
) -> IcmpAnswer | None:
    """Read what a raw socket received; None unless it is an answer to a probe of ours, or an error about one.

    IPv4 comes with its header, IPv6 without. The probe that an error repeats always has its header.
    """
    if version is _V4:
        data = _without_header(data)
    if len(data) < _ECHO.size:
        return None
    kind, _, _, number, sequence = _ECHO.unpack_from(data)
    if kind == version.reply and number == identity:
        return IcmpAnswer(sequence, "reply", sender, kernel_ns)
    name = _error_name(kind, version)
    if name is None:
        return None
    repeated = data[_ECHO.size :]
    inner = _without_header(repeated) if version is _V4 else repeated[40:]
    if len(inner) < _ECHO.size:
        return None
    kind, _, _, number, sequence = _ECHO.unpack_from(inner)
    ours = kind == version.request and number == identity
    return IcmpAnswer(sequence, name, sender, kernel_ns) if ours else None


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def kernel_time(control: list[tuple[int, int, bytes]]) -> int | None:
    """The kernel's receive time in ns of the real-time clock, where a control message holds one."""
    for level, kind, value in control:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(value) == struct.calcsize("@ll"):
            seconds, nanoseconds = struct.unpack("@ll", value)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return None


def _without_header(packet: bytes) -> bytes:
    """What follows the IPv4 header; empty where there is none."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return b""
    return packet[4 * (packet[0] & 15) :]


def _address(address: bytes) -> str:
    """The address in a struct sockaddr as text; empty where there is none."""
    if len(address) < 8:
        return ""
    family = struct.unpack_from("=H", address)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[4:8])
    if family == socket.AF_INET6 and len(address) >= 24:
        return socket.inet_ntop(socket.AF_INET6, address[8:24])
    return ""
