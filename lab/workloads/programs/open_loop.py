"""Open-loop load generator: requests at moments fixed in advance, latency counted from the moment each was due.

Run as a file of its own: `python -I -S open_loop.py http|redis HOST PORT TARGET RATE SECONDS CONNECTIONS [BURSTS]`;
TARGET is a path, or for redis COMMAND:KEYS:BYTES; with BURSTS above 0 the requests of a second come in so many bursts.
Prints one JSON object. A request that finds no connection free waits, and its wait counts: a server that stalls is not
spared the requests of that time (no coordinated omission). Requests without a reply at the end count with the time that
they have waited. Every second has the same number of requests, at random moments in it that are the same in every run,
so that two runs differ only by what happened to them. Where its folder has a file `progress` (lab/on_off/progress.py),
it counts there what was due, replies and their latency. Its clock leaves out the time in which it was frozen, and when
the lab says that a new state begins, it gives up requests that still wait for a connection: they are of the old state.
"""

import gc
import json
import mmap
import os
import random
import re
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle

_DRAIN_S = 0.2  # replies that are on their way at the end are waited for so long
_TIMEOUT_S = 5.0  # a reply after more than this counts as timed out
_CONNECT_S = 5.0
_BUFFER = 1 << 18
_HEAD = 8192  # no reply's head is longer
_VALUES = 1 << 24  # bytes that the values of all prepared requests may have together
_PREFIX = 12  # covers the status of an HTTP reply, and the length of a value of Redis
_SEED = 1
_BURST_S = 0.02
_DONE, _WAITED_US, _DUE, _STATE, _FROZEN_NS = 0, 1, 2, -2, -1  # slots of the file

Length = Callable[[bytes], "int | None"]


class WrongReplyError(Exception):
    """The server answers wrongly or not at all; the text says how."""


def http_length(start: bytes) -> "int | None":
    """Bytes of the whole reply that begins so; None = its head is not complete yet."""
    end = start.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = re.search(rb"\r\ncontent-length: *(\d+)", start[:end], re.IGNORECASE)
    if not start.startswith(b"HTTP/1.1 200 ") or length is None:
        raise WrongReplyError(f"the web server answered {start[:40]!r}")
    return end + 4 + int(length[1])


def redis_length(start: bytes) -> "int | None":
    """The same for Redis' serialization protocol: `+OK` or `$LENGTH` and the value."""
    end = start.find(b"\r\n")
    if end < 0:
        return None
    if start[:1] == b"+":
        return end + 2
    if start[:1] == b"$" and start[1:end].isdigit():
        return end + 2 + int(start[1:end]) + 2
    raise WrongReplyError(f"redis answered {start[:40]!r}")


def http_requests(host: str, path: str) -> list[bytes]:
    return [f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()]


def redis_requests(target: str) -> list[bytes]:
    """A thousand commands on keys drawn from those that redis-benchmark would use; fewer where values are large."""
    command, keys, size = target.split(":")
    count = max(1, min(1000, _VALUES // int(size))) if command == "set" else 1000
    draw = random.Random(_SEED)  # noqa: S311 - no secret
    words = [[command.upper(), f"key:{draw.randrange(int(keys)):012d}"] for _ in range(count)]
    for word in words if command == "set" else []:
        word.append("x" * int(size))
    return ["".join([f"*{len(word)}\r\n", *(f"${len(w)}\r\n{w}\r\n" for w in word)]).encode() for word in words]


def slots() -> memoryview:
    """The counters that the lab reads while this works; without the file some that are not read."""
    try:
        with open("progress", "r+b") as file:  # noqa: PTH123 - starts fast without pathlib
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    except FileNotFoundError:
        return memoryview(bytearray(40)).cast("Q")


def moments(rate: float, bursts: int = 0) -> Iterator[float]:
    """When requests are due, in seconds from the start, rising and without end."""
    draw = random.Random(_SEED)  # noqa: S311 - no secret
    second, owed = 0, 0.0
    while True:
        owed += rate
        count = int(owed)
        owed -= count
        if bursts:
            starts = [draw.random() for _ in range(bursts)]
            inside = [min(0.999999, draw.choice(starts) + _BURST_S * draw.random()) for _ in range(count)]
        else:
            inside = [draw.random() for _ in range(count)]
        yield from sorted(second + at for at in inside)
        second += 1


class LoadConnection:
    """One connection with at most one request on its way; `due` is when that should have been sent, below 0 = none.

    `rest` of the request is still to be sent; `left` bytes of the reply are still to come, behind its `head`.
    """

    __slots__ = ("due", "head", "left", "rest", "socket")

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.due, self.head, self.left, self.rest = -1.0, b"", 0, b""


class OpenLoop:
    """The requests of one run; times are seconds from its begin."""

    def __init__(self, connections: list[LoadConnection], requests: list[bytes], length: Length) -> None:
        self.connections = {connection.socket.fileno(): connection for connection in connections}
        self.idle = list(connections)
        self.waiting: deque[float] = deque()
        self.requests = cycle(requests)
        self.length = length
        self.buffer = bytearray(_BUFFER)
        self.usual, self.prefix = -1, b""  # size and first bytes of a reply that came in one piece; none yet
        self.latencies = array("d")
        self.lags = array("d")  # how late this program itself was, where a connection was free
        self.replies = 0
        self.begin = 0.0
        self.slots = slots()
        self.epoll = select.epoll()
        for number in self.connections:
            self.epoll.register(number, select.EPOLLIN)

    def clock(self) -> float:
        """Seconds since the begin in which it was not frozen."""
        return time.perf_counter() - self.begin - self.slots[_FROZEN_NS] * 1e-9

    def run(self, rate: float, seconds: float, bursts: int = 0) -> None:
        """Send requests and take replies for this time, then wait a little for replies that are on their way."""
        due_at = moments(rate, bursts)
        due = next(due_at)
        self.begin = time.perf_counter() - self.slots[_FROZEN_NS] * 1e-9
        now, state = 0.0, self.slots[_STATE]
        while now < seconds:
            if self.slots[_STATE] != state:
                state = self.slots[_STATE]
                self.waiting.clear()
            could_send = not self.waiting and bool(self.idle)
            while due <= now:
                if could_send:
                    self.lags.append(now - due)
                self.waiting.append(due)
                self.slots[_DUE] += 1
                due = next(due_at)
            if self.waiting:
                self.send()
            now = self.receive(min(due, seconds) - now)
        self.replies = len(self.latencies)
        while due < seconds:
            self.waiting.append(due)
            due = next(due_at)
        last = seconds + _DRAIN_S
        while now < last and (self.waiting or len(self.idle) < len(self.connections)):
            self.send()
            now = self.receive(last - now)
        pending = [connection.due for connection in self.connections.values() if connection.due >= 0]
        self.latencies.extend(now - due for due in [*pending, *self.waiting])

    def send(self) -> None:
        while self.waiting and self.idle:
            connection = self.idle.pop()
            connection.due = self.waiting.popleft()
            request = next(self.requests)
            sent = connection.socket.send(request)
            if sent < len(request):
                connection.rest = request[sent:]
                self.epoll.modify(connection.socket, select.EPOLLIN | select.EPOLLOUT)

    def go_on(self, connection: LoadConnection) -> None:
        """Send more of a request that did not fit at once."""
        connection.rest = connection.rest[connection.socket.send(connection.rest) :]
        if not connection.rest:
            self.epoll.modify(connection.socket, select.EPOLLIN)

    def receive(self, patience_s: float) -> float:
        """Take what has come, or wait for it; returns the time then."""
        events = self.epoll.poll(0)
        if not events and patience_s > 0:  # epoll itself waits for whole milliseconds only
            select.select([self.epoll], [], [], patience_s)
            events = self.epoll.poll(0)
        now = self.clock()
        done, waited = 0, 0.0
        for number, what in events:
            connection = self.connections[number]
            if what == select.EPOLLOUT:
                self.go_on(connection)
                continue
            size = connection.socket.recv_into(self.buffer)
            like_last = size == self.usual and not connection.left and self.buffer.startswith(self.prefix)
            if like_last or self.is_whole(connection, size):
                self.latencies.append(now - connection.due)
                done += 1
                waited += now - connection.due
                connection.due = -1.0
                self.idle.append(connection)
        if done:
            self.slots[_DONE] += done
            self.slots[_WAITED_US] += int(waited * 1e6)
        return now

    def is_whole(self, connection: LoadConnection, size: int) -> bool:
        """Whether a reply is complete with so many bytes in the buffer; WrongReplyError for a bad one."""
        if not size:
            raise WrongReplyError("the server closed a connection")
        if connection.left:
            connection.left -= size
        else:
            earlier = len(connection.head)
            connection.head += bytes(self.buffer[: min(size, _HEAD)])
            whole = self.length(connection.head)
            if whole is None:
                if len(connection.head) >= _HEAD:
                    raise WrongReplyError("the server's answer has no end of its head")
                return False
            connection.left = whole - earlier - size
            if not earlier and not connection.left:
                self.usual, self.prefix = size, connection.head[:_PREFIX]
            connection.head = b""
        if connection.left < 0:
            raise WrongReplyError("the server sent more than the reply")
        return connection.left == 0

    def report(self, seconds: float) -> dict[str, "float | None"]:
        """The numbers to print; WrongReplyError when there was no reply at all."""
        all_s, lags = sorted(self.latencies), sorted(self.lags)
        if not self.replies:
            raise WrongReplyError("no reply came in the whole time")
        return {
            "due": len(all_s), "replies": self.replies, "seconds": seconds, "mean_ms": sum(all_s) / len(all_s) * 1e3,
            "p50_ms": quantile(all_s, 0.5), "p95_ms": quantile(all_s, 0.95), "p99_ms": quantile(all_s, 0.99),
            "max_ms": all_s[-1] * 1e3, "late": sum(value > _TIMEOUT_S for value in all_s),
            "lag_p95_ms": quantile(lags, 0.95) if lags else None,
        }  # fmt: skip


def quantile(ordered: list[float], share: float) -> float:
    """Value in ms below which this share of the ordered seconds lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3


def main(arguments: list[str]) -> None:
    kind, host, port, target, rate, seconds, count, *more = arguments
    with open("/proc/self/timerslack_ns", "w", encoding="ascii") as slack:  # noqa: PTH123 - starts fast without pathlib
        slack.write("1")  # waits end when they should, not within 50 µs of it
    requests = http_requests(host, target) if kind == "http" else redis_requests(target)
    gc.disable()
    try:
        connections = [LoadConnection(host, int(port)) for _ in range(int(count))]
        load = OpenLoop(connections, requests, http_length if kind == "http" else redis_length)
        load.run(float(rate), float(seconds), int(more[0]) if more else 0)
        os.write(1, json.dumps(load.report(float(seconds))).encode())
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(f"{host}:{port}: the server closed a connection")
    except OSError as error:
        sys.exit(f"{host}:{port} cannot be loaded: {error.strerror or error}")
    except WrongReplyError as error:
        sys.exit(f"{host}:{port}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
