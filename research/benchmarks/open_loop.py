"""Open-loop HTTP load over kept connections: questions at moments fixed in advance, latency from when each was due."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CONNECTIONS = 64
DRAIN_S = 5.0  # answers that are on their way at the end are waited for so long; what has none then counts as lost


@dataclass
class LoadResults:
    """What came of the questions: latency in ms of each that was answered, how many by status, how many were lost."""

    latency_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    seconds: float = 0.0

    def at(self, share: float) -> float:
        """The latency that this share of the answers does not exceed; nan where there is none."""
        ordered = sorted(self.latency_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


def ask(port: int, path: str, bodies: Sequence[bytes], *, rate: float, seconds: float, seed: int = 1) -> LoadResults:
    """POST the bodies in turn, `rate` a second on the average at random moments; GET where a body is empty."""
    return asyncio.run(_ask(port, path, bodies, rate, seconds, random.Random(seed)))


class _QuestionConnection(asyncio.Protocol):
    """A connection with one question at a time; reports when it is free again."""

    def __init__(self, load: _QuestionLoad) -> None:
        self._load = load
        self._due: float | None = None
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._load.free(self)

    def send(self, due: float, request: bytes) -> None:
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(b"\r\n\r\n")
        if end < 0 or self._due is None:
            return
        head = bytes(self._got[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
        if len(self._got) < end + 4 + length:
            return
        self._load.asked.statuses[int(head[9:12])] += 1
        self._load.asked.latency_ms.append(1000 * (time.perf_counter() - self._due))
        self._due = None
        self._got.clear()
        self._load.free(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._due is not None:
            self._load.asked.lost += 1


class _QuestionLoad:
    def __init__(self, path: str, bodies: Sequence[bytes]) -> None:
        self.asked = LoadResults()
        self._free: deque[_QuestionConnection] = deque()
        self._waiting: deque[float] = deque()
        self._requests = _requests(path, bodies)

    def free(self, connection: _QuestionConnection) -> None:
        if self._waiting:
            connection.send(self._waiting.popleft(), next(self._requests))
        else:
            self._free.append(connection)

    def due(self, moment: float) -> None:
        if self._free:
            self._free.popleft().send(moment, next(self._requests))
        else:
            self._waiting.append(moment)  # and that counts

    def close(self) -> None:
        self.asked.lost += len(self._waiting)
        for connection in self._free:
            connection._transport.close()


def _requests(path: str, bodies: Sequence[bytes]) -> Iterator[bytes]:
    while True:
        for body in bodies:
            head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            yield head.encode() + b"Content-Type: application/json\r\n\r\n" + body


async def _ask(
    port: int, path: str, bodies: Sequence[bytes], rate: float, seconds: float, chance: random.Random
) -> LoadResults:
    loop = asyncio.get_running_loop()
    load = _QuestionLoad(path, bodies)
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: _QuestionConnection(load), "127.0.0.1", port)
    began = moment = time.perf_counter()
    asked = 0
    while (moment := moment + chance.expovariate(rate)) < began + seconds:
        wait = moment - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        load.due(moment)
        asked += 1
    load.asked.seconds = time.perf_counter() - began
    until = time.perf_counter() + DRAIN_S
    while sum(load.asked.statuses.values()) + load.asked.lost < asked and time.perf_counter() < until:
        await asyncio.sleep(0.01)
    load.close()
    load.asked.lost = asked - sum(load.asked.statuses.values())
    return load.asked
