"""The time that 32 KB take there and back over TCP (L3): a whole block goes, and comes back once it is whole."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import time
from dataclasses import dataclass

from profiler.observed import Quantity
from profiler.pictures import Figure, cumulative, distribution, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, described
from profiler.probes.sessions import SESSION_S, Peer, fill

_BLOCK = 32 << 10  # LATENCY section 3
_SAMPLES, _EVERY_S = 100, 0.1
_TIMEOUT_S = 30.0
_RENEW_S = SESSION_S / 2  # then a new connection: the paper measured for days, and responders end long sessions
_TCP_MAXSEG = 2


@dataclass(frozen=True, slots=True)
class _Transfer:
    at_s: float
    took_ms: float
    sent_ms: float  # until the last byte was handed to the kernel


class Transfer:
    """Less specific than round-trip times: both interfaces, both kernels and both programs take part."""

    name = "transfer"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        amount = parser.add_mutually_exclusive_group()
        amount.add_argument("--count", type=count(10**7), default=_SAMPLES, metavar="N", help=f"blocks ({_SAMPLES})")
        amount.add_argument("--seconds", type=above(0, 7200), metavar="S", help="measure for this long instead")
        parser.add_argument(
            "--every", type=above(0, 600), default=_EVERY_S, metavar="S",
            help=f"start one every S seconds ({_EVERY_S:g}; the paper: 300, for days)",
        )  # fmt: skip
        parser.add_argument(
            "--size", type=count(1 << 24), default=_BLOCK, metavar="BYTES", help=f"of a block ({_BLOCK})"
        )
        parser.add_argument("--connect", action="store_true", help="use a new connection for every block")

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        transfers, segment = measure(options, progress)
        if not transfers:
            raise ProbeError("stopped before one block was back")
        took = [transfer.took_ms for transfer in transfers]
        values = described(took, "ms")
        values["goodput_median"] = Quantity(2 * options.size * 8 / 1e3 / values["median"].value, "Mbit/s")
        values["samples"] = Quantity(len(took), "1")
        circumstances = {
            "block": f"{options.size} bytes", "every": f"{options.every:g} s", "segment": f"{segment} bytes",
            "connection": "fresh" if options.connect else "one",
        }  # fmt: skip
        series = RawSeries({"at_s": [transfer.at_s for transfer in transfers], "took_ms": took,
                         "sent_ms": [transfer.sent_ms for transfer in transfers]})  # fmt: skip
        return ProbeRun(values, "median", series, circumstances)

    def draw(self, run: ProbeRun) -> Figure:
        figure, (times, shares) = new_figure(2)
        columns = {name: [float(cell or 0) for cell in column] for name, column in run.series.columns.items()}
        over_time(times, columns["at_s"], columns["took_ms"], "ms", "There and back")
        times.set_ylim(bottom=0)
        distribution(shares, [("", cumulative(columns["took_ms"]))], "ms", "Distribution", log=True)
        return figure


def measure(options: argparse.Namespace, progress: Progress) -> tuple[list[_Transfer], int]:
    """Transfer blocks on a grid of time; also the segment size that TCP uses on the way. ProbeError when it breaks."""
    transfers: list[_Transfer] = []
    number = options.count if options.seconds is None else max(1, int(options.seconds / options.every))
    block = os.urandom(options.size)  # random, so that nothing on the way can compress it
    into = memoryview(bytearray(options.size))
    progress.begin(number, "blocks")
    with contextlib.ExitStack() as stack:
        connection = _connect(options.peer, options.size, stack)
        segment = connection.getsockopt(socket.IPPROTO_TCP, _TCP_MAXSEG)
        first = opened = time.monotonic()
        with progress.interruptible():
            while len(transfers) < number and not progress.stopped:
                time.sleep(max(0.0, first + len(transfers) * options.every - time.monotonic()))
                if (options.connect and transfers) or time.monotonic() - opened > _RENEW_S:
                    stack.close()
                    connection = _connect(options.peer, options.size, stack)
                    opened = time.monotonic()
                transfers.append(there_and_back(connection, block, into, first))
                progress.update(len(transfers))
    return transfers, segment


def _connect(peer: Peer, block: int, stack: contextlib.ExitStack) -> socket.socket:
    session = stack.enter_context(peer.open("echo-stream", {"block_bytes": block}))
    connection = stack.enter_context(session.connect())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(_TIMEOUT_S)
    return connection


def there_and_back(connection: socket.socket, block: bytes, into: memoryview, first: float) -> _Transfer:
    """Send a block and wait until it is back; ProbeError when it does not come, or is not the one that was sent."""
    begin = time.monotonic()
    try:
        connection.sendall(block)
        sent = time.monotonic()
        if not fill(connection, into):
            raise ProbeError("the responder closed the connection")
    except OSError as error:
        raise ProbeError(f"the block did not come back ({error.strerror or 'too late'})") from None
    end = time.monotonic()
    if into != block:
        raise ProbeError("what came back is not what was sent")
    return _Transfer(begin - first, (end - begin) * 1e3, (sent - begin) * 1e3)


PROBE = Transfer()
