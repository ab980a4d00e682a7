"""The responder's services for probes, found by their name, each a function of a ServedSession.

A service runs in a process of its own, which is killed when its client goes away or its time is over: it may block
anywhere, and needs no clean-up beyond closing what it opened. It also ends by itself when the client closes the
session, because a responder that was killed can no longer end it. It sends datagrams only to the address of its control
connection, and only after that address sent the session's token (`ServedSession.meet`), so that no client can aim a
responder at a third machine.
"""

from __future__ import annotations

import contextlib
import random
import select
import shutil
import socket
import struct
import subprocess
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from profiler.probes import sessions
from profiler.probes.messages import LARGEST, MOST_MESSAGE_BYTES, PERTURBATION, PORT, arguments
from profiler.probes.sessions import TOKEN_BYTES, ControlChannel, FramingError, fill
from profiler.probes.throughput import (
    BUCKET_BYTES,
    QUIET_FLOOR_NS,
    EndpointCpu,
    GapWatch,
    Inbox,
    Recorder,
    pack,
    prepare_receiver,
    set_buffer,
)

_MEET_S = 10.0


class ServedSession:
    """The far end's view of one session: the control connection, what was asked for, and the token of the session."""

    def __init__(self, channel: ControlChannel, parameters: Mapping[str, Any], token: bytes) -> None:
        self.channel = channel
        self.parameters = parameters  # from outside: read it with framing.whole and framing.number
        self.token = token
        self._family = channel.socket.family
        self._local: str = channel.socket.getsockname()[0]
        self._peer: str = channel.socket.getpeername()[0]

    def ready(self, port: int = 0, **further: Any) -> None:
        """Tell the client that the service waits for it at `port`; check the parameters before."""
        self.channel.send({"ok": True, "token": self.token.hex(), "port": port, **further})

    def left(self, wait_s: float = 0.0) -> bool:
        """Whether the client closes the session, or sends something, within `wait_s`."""
        return bool(select.select([self.channel.socket], [], [], wait_s)[0])

    def listener(self, prepare: Callable[[socket.socket], None] | None = None, backlog: int = 64) -> socket.socket:
        """A listening TCP socket on a free port of the control connection's address; `prepare` sets socket options."""
        listener = socket.socket(self._family, socket.SOCK_STREAM)
        if prepare:
            prepare(listener)
        listener.bind((self._local, 0))
        listener.listen(backlog)
        return listener

    def accept(self, listener: socket.socket, timeout_s: float = _MEET_S) -> socket.socket:
        """The next data connection of this session: others, and those without the token, are closed unanswered.

        FramingError when none comes in time.
        """
        listener.settimeout(timeout_s)
        while True:
            try:
                connection, address = listener.accept()
            except OSError as error:
                raise FramingError(f"no data connection came ({error.strerror or 'too late'})") from None
            connection.settimeout(timeout_s)
            token = bytearray(TOKEN_BYTES)
            with contextlib.suppress(OSError):
                if address[0] == self._peer and fill(connection, memoryview(token)) and token == self.token:
                    return connection
            connection.close()

    def datagrams(self, prepare: Callable[[socket.socket], None] | None = None) -> socket.socket:
        """A UDP socket on a free port of the control connection's address; `prepare` sets socket options."""
        datagrams = socket.socket(self._family, socket.SOCK_DGRAM)
        if prepare:
            prepare(datagrams)
        datagrams.bind((self._local, 0))
        return datagrams

    def meet(self, datagrams: socket.socket, timeout_s: float = _MEET_S) -> None:
        """Wait for the token from the client's address, answer it, and connect to where it came from.

        From then on the kernel drops what comes from elsewhere. FramingError when it does not come in time.
        """
        datagrams.settimeout(timeout_s)
        while True:
            try:
                token, address = datagrams.recvfrom(2 * TOKEN_BYTES)
            except OSError as error:
                raise FramingError(f"no datagram came ({error.strerror or 'too late'})") from None
            if address[0] == self._peer and token == self.token:
                datagrams.connect(address)
                datagrams.send(self.token)
                datagrams.settimeout(None)
                return


# Takes a block over TCP, whole, and sends it back; again and again, until the client closes.

_LARGEST_BLOCK = 1 << 24
_BLOCK_SILENCE_S = 600.0  # the client may wait long between blocks


def serve_echo_stream(served: ServedSession) -> None:
    """Parameter `block_bytes`: length of a block, 1 to 16 MB."""
    length = sessions.whole(served.parameters, "block_bytes", 32 << 10, 1, _LARGEST_BLOCK)
    with served.listener() as listener:
        served.ready(listener.getsockname()[1])
        connection = served.accept(listener)
    block = memoryview(bytearray(length))
    with connection:
        connection.settimeout(_BLOCK_SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while sessions.fill(connection, block):
            connection.sendall(block)


# Sends every datagram back as it came, until the client closes the session.

_LARGEST_DATAGRAM = 65_536
_LOOK_S = 1.0  # of silence between looks whether the client is still there


def serve_echo_udp(served: ServedSession) -> None:
    """No parameters. Answers are never larger than what came."""
    with served.datagrams() as datagrams:
        served.ready(datagrams.getsockname()[1])
        served.meet(datagrams)
        datagrams.settimeout(_LOOK_S)
        buffer = memoryview(bytearray(_LARGEST_DATAGRAM))
        while True:
            try:
                length = datagrams.recv_into(buffer)
                datagrams.send(buffer[:length])
            except TimeoutError:
                if served.left():
                    return
            except ConnectionRefusedError:  # an answer came too late for a client that had gone
                continue


# Notes which packets of loss probes came, when they were read and when the kernel had them.

HEADER = struct.Struct("!Q")  # the number of the packet
LEAST_BYTES = 64
MOST_PACKETS = 2_000_000  # their report is 48 MB
_BUFFER = 1 << 20  # bytes: room for a second of probes, so that loss is the path's


def serve_loss_sink(served: ServedSession) -> None:
    """Parameters `packet_bytes` and `drop_one_in`. Any command ends it once 0.2 s were quiet.

    With `drop_one_in` it ignores one packet in so many, by chance: a known loss, by which estimates can be judged.
    """
    packet = sessions.whole(served.parameters, "packet_bytes", 600, LEAST_BYTES, 65_507)
    rare = sessions.whole(served.parameters, "drop_one_in", 0, 0, MOST_PACKETS)
    chance = random.Random()  # noqa: S311 - which packets, not a secret
    numbers, read, arrived = array("q"), array("q"), array("q")
    with served.datagrams(partial(prepare_receiver, buffer_bytes=_BUFFER)) as end:
        served.ready(end.getsockname()[1])
        served.meet(end)
        inbox = Inbox(end)
        with GapWatch() as watch:
            while len(numbers) < MOST_PACKETS:
                taken = inbox.take()
                if taken is None:
                    if inbox.finished(served.channel.socket):
                        break
                    continue
                block, read_ns, arrived_ns = taken
                for start in range(0, len(block) - LEAST_BYTES + 1, packet):
                    if rare and chance.randrange(rare) == 0:
                        continue
                    (number,) = HEADER.unpack_from(block, start)
                    numbers.append(number & (1 << 62) - 1)
                    read.append(read_ns)
                    arrived.append(arrived_ns)
    served.channel.receive(1.0)
    answer = {"dropped": inbox.dropped, "kernel_times": inbox.kernel_times, **watch.summary()}
    served.channel.send(answer, pack((len(numbers), *numbers, *read, *arrived)))


# Starts NetPIPE's receiver for one measurement; it listens on all addresses, for as long as the session lasts.

_START_S = 5.0


def serve_netpipe(served: ServedSession) -> None:
    """Parameters `largest`, `perturbation` and `port` must be the sender's; ends with NetPIPE, or ends it."""
    largest = sessions.whole(served.parameters, "largest", LARGEST, 1, 1 << 30)
    perturbation = sessions.whole(served.parameters, "perturbation", PERTURBATION, 0, 64)
    port = sessions.whole(served.parameters, "port", PORT, 1024, 65_535)
    if shutil.which("NPtcp") is None:
        raise sessions.FramingError("NetPIPE (NPtcp) is not installed there")
    if listens(port):
        raise sessions.FramingError(f"port {port}, which NetPIPE needs there, is in use")
    with subprocess.Popen(
        arguments(largest, perturbation, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    ) as receiver:
        deadline = time.monotonic() + _START_S
        while not listens(port):
            if receiver.poll() is not None or time.monotonic() > deadline:
                receiver.kill()
                raise sessions.FramingError("NetPIPE's receiver did not start there")
            time.sleep(0.02)
        served.ready(port)
        while receiver.poll() is None and not served.left(_LOOK_S):
            pass
        receiver.kill()


def listens(port: int) -> bool:
    """Whether a TCP socket listens on `port` in this network namespace (state 0A of /proc/net/tcp, proc(5))."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A" and fields[1].endswith(f":{port:04X}"):
                return True
    return False


# Sends every message of a TCP stream back once it is complete; sizes and numbers are announced by commands.

_MOST_MESSAGES = 10_000_000
_SILENCE_S = 120.0


def serve_ping_pong(served: ServedSession) -> None:
    """Serve commands with `size` and `count`: after "ok", that many messages follow and are answered."""
    with served.listener() as listener:
        served.ready(listener.getsockname()[1])
        with served.accept(listener) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.settimeout(None)
            _answer(served, stream)


def _answer(served: ServedSession, stream: socket.socket) -> None:
    space = memoryview(bytearray(1))
    while True:
        command = served.channel.receive(_SILENCE_S)
        size = sessions.whole(command, "size", 1, 1, MOST_MESSAGE_BYTES)
        count = sessions.whole(command, "count", 1, 1, _MOST_MESSAGES)
        if len(space) < size:
            space = memoryview(bytearray(size))
        view = space[:size]
        served.channel.send({"ok": True})
        for _ in range(count):
            if not sessions.fill(stream, view):
                return
            stream.sendall(view)


# Answers requests of a set size with as much, on many TCP connections at once, one by one (epoll) in one process.

MOST_CONNECTIONS = 1024
MOST_RESPONSE_BYTES = 65_536
_SEND_S = 5.0


@dataclass(slots=True)
class _Client:
    stream: socket.socket
    missing: int


def serve_responses(served: ServedSession) -> None:
    """Parameter `size`: bytes of a request and of its answer. A command is answered by the CPU time used so far."""
    size = sessions.whole(served.parameters, "size", 64, 1, MOST_RESPONSE_BYTES)
    with served.listener(backlog=MOST_CONNECTIONS) as listener:
        served.ready(listener.getsockname()[1])
        _ResponseServer(served, listener, size).run()


class _ResponseServer:
    def __init__(self, served: ServedSession, listener: socket.socket, size: int) -> None:
        self._served, self._listener, self._size = served, listener, size
        self._answer = bytes(size)
        self._control = served.channel.socket.fileno()
        self._poll = select.epoll()
        self._clients: dict[int, _Client] = {}
        for descriptor in (listener.fileno(), self._control):
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self) -> None:
        """Serve for as long as the session lasts."""
        listening = self._listener.fileno()
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == listening:
                    self._welcome()
                elif descriptor == self._control:
                    self._served.channel.receive(1.0)
                    self._served.channel.send({"cpu_s": time.process_time()})
                else:
                    self._serve(descriptor)

    def _welcome(self) -> None:
        with suppress(sessions.FramingError):
            stream = self._served.accept(self._listener, 1.0)
            if len(self._clients) >= MOST_CONNECTIONS:
                stream.close()
                return
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[stream.fileno()] = _Client(stream, self._size)
            self._poll.register(stream, select.EPOLLIN)

    def _serve(self, descriptor: int) -> None:
        client = self._clients[descriptor]
        try:
            size = len(client.stream.recv(client.missing))
            client.missing -= size
            if not client.missing:
                client.missing = self._size
                _send_whole(client.stream, self._answer)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._poll.unregister(descriptor)
            del self._clients[descriptor]
            client.stream.close()


def _send_whole(stream: socket.socket, answer: bytes) -> None:
    """Send all of it at once, or wait for the socket's buffer where that is smaller than the answer."""
    sent = 0
    with suppress(BlockingIOError):
        sent = stream.send(answer)
    if sent < len(answer):
        stream.settimeout(_SEND_S)
        stream.sendall(memoryview(answer)[sent:])
        stream.setblocking(False)


# Receives a TCP stream with a set window, and reports when each 256 KB of it had come.


def serve_tcp_sink(served: ServedSession) -> None:
    """Parameter `window_bytes`. A command after the end of the stream asks for the report."""
    window = sessions.whole(served.parameters, "window_bytes", 256 << 10, 4096, 256 << 20)
    granted = 0

    def prepare(listener: socket.socket) -> None:  # before listening, or the window would not be scaled for it
        nonlocal granted
        granted = set_buffer(listener, socket.SO_RCVBUF, window)

    with served.listener(prepare) as listener:
        served.ready(listener.getsockname()[1], window_bytes=granted)
        with served.accept(listener) as stream:
            stream.settimeout(None)
            recorder = Recorder()
            before = EndpointCpu.now()
            _drain(stream, recorder)
            effort = EndpointCpu.now().since(before)
    served.channel.receive(10.0)
    served.channel.send(effort.document(), recorder.packed())


def _drain(stream: socket.socket, recorder: Recorder) -> None:
    buffer = memoryview(bytearray(BUCKET_BYTES))
    try:
        while size := stream.recv_into(buffer):
            recorder.add(time.monotonic_ns(), size)
    except ConnectionResetError:  # the sender was cut off: what came until then counts
        return


# Receives paced datagrams, and reports when each 256 KB came (as read, and by the kernel) and what was missing.

_LEAST, _MOST = 64, 65_507  # bytes of a packet; tokens are shorter


def serve_udp_sink(served: ServedSession) -> None:
    """Parameters `packet_bytes`, `buffer_bytes`, `gap_floor_ns`. Any command ends it once 0.2 s were quiet."""
    packet = sessions.whole(served.parameters, "packet_bytes", 1472, _LEAST, _MOST)
    buffer = sessions.whole(served.parameters, "buffer_bytes", 128 << 10, 4096, 256 << 20)
    floor = sessions.whole(served.parameters, "gap_floor_ns", QUIET_FLOOR_NS, 1_000_000, 60_000_000_000)
    with served.datagrams(partial(prepare_receiver, buffer_bytes=buffer)) as end:
        served.ready(end.getsockname()[1])
        served.meet(end)
        inbox, read, arrived = Inbox(end), Recorder(floor), Recorder(floor)
        before = EndpointCpu.now()
        packets, reordered = _receive(inbox, served, packet, read, arrived)
        effort = EndpointCpu.now().since(before)
    served.channel.receive(1.0)
    answer = {
        "packets": packets,
        "reordered": reordered,
        "dropped": inbox.dropped,
        "kernel_times": inbox.kernel_times,
        **effort.document(),
    }
    first = read.packed()
    served.channel.send({**answer, "first_bytes": len(first)}, first + arrived.packed())


def _receive(inbox: Inbox, served: ServedSession, packet: int, read: Recorder, arrived: Recorder) -> tuple[int, int]:
    """Packets received, and how many of them came after one with a higher number."""
    unpack, take = HEADER.unpack_from, inbox.take
    control = served.channel.socket
    count, reordered, highest = 0, 0, -1
    while True:
        taken = take()
        if taken is None:
            if inbox.finished(control):
                return count, reordered
            continue
        block, read_ns, arrived_ns = taken
        length = len(block)
        if length < _LEAST:
            continue
        read.add(read_ns, length)
        arrived.add(arrived_ns, length)
        for start in range(0, length, packet):
            if length - start < HEADER.size:
                break
            (number,) = unpack(block, start)
            count += 1
            if number > highest:
                highest = number
            else:
                reordered += 1


SERVICES: Mapping[str, Callable[[ServedSession], None]] = MappingProxyType(
    {
        "echo-stream": serve_echo_stream,
        "echo-udp": serve_echo_udp,
        "loss-sink": serve_loss_sink,
        "netpipe": serve_netpipe,
        "ping-pong": serve_ping_pong,
        "responses": serve_responses,
        "tcp-sink": serve_tcp_sink,
        "udp-sink": serve_udp_sink,
    }
)


def find(name: str) -> Callable[[ServedSession], None]:
    """The service of this name; FramingError when there is none."""
    service = SERVICES.get(name.replace("_", "-")) if isinstance(name, str) else None
    if service is None:
        raise FramingError("this responder has no such service: is it of another version?")
    return service
