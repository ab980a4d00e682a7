"""Two network namespaces for tests of probes with a far end: joined by a veth pair, or by a relay that can be stopped.

The relay stands for a driver domain: packets from one end wait in the kernel while it is stopped, and come through at
memory speed when it goes on. It can also drop every so many packets.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.processes import wait_until
from profiler.observed import ProbeResult
from profiler.probes import load
from profiler.probes.base import ProbeRun, Progress
from profiler.probes.run import run_probe

NEAR, FAR = "10.99.7.1", "10.99.7.2"
MAIN = "from profiler.cli import main; import sys; sys.exit(main())"
ROOT = Path(__file__).parents[2]
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
    reason="needs root, ip and tc: it makes network namespaces",
)
needs_tun = pytest.mark.skipif(not os.access("/dev/net/tun", os.W_OK), reason="needs /dev/net/tun")


def run(name: str, *arguments: str, to: tuple[str, int] | None = None, progress: Progress | None = None,
        ) -> tuple[ProbeResult, ProbeRun]:  # fmt: skip
    """Run a probe in this process, as the command line would."""
    return run_probe(name, options_of(name, *arguments, to=to), progress or Progress())


def numbers(result: ProbeResult | ProbeRun) -> dict[str, float]:
    return {name: quantity.value for name, quantity in result.values.items()}


def options_of(name: str, *arguments: str, **more: object) -> argparse.Namespace:
    """What a probe's command line gives, and what the command adds to it."""
    parser = argparse.ArgumentParser()
    load(name).add_options(parser)
    return parser.parse_args(arguments, argparse.Namespace(**more))


class StopAfter(Progress):
    """Is stopped, as by Ctrl-C, after so many seconds of work."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def begin(self, total: float, unit: str) -> None:
        signal.signal(signal.SIGALRM, lambda _number, _frame: self.stop())
        signal.setitimer(signal.ITIMER_REAL, self._seconds)


class StopOnce(Progress):
    """Is stopped, as by Ctrl-C, once so much is done, however long that takes."""

    def __init__(self, done: float) -> None:
        super().__init__()
        self._done = done

    def update(self, done: float) -> None:
        if done >= self._done and not self.stopped:
            self.stop()


@contextlib.contextmanager
def responder(*prefix: str, listen: str = "127.0.0.1") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`probe serve` on a free port, behind a command prefix (`ip netns exec NAME`); gives it and its port."""
    command = [*prefix, sys.executable, "-c", MAIN, "probe", "serve", "--listen", f"{listen}:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as served:
        assert served.stdout is not None
        try:
            yield served, json.loads(served.stdout.readline())["port"]
        finally:
            served.terminate()
            served.wait(60)


def children(pid: int) -> list[int]:
    """Processes that `pid` started: a responder's sessions."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process ends within a minute; there may be no parent to reap it."""

    def ended() -> bool:
        try:
            return ") Z " in Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    return wait_until(ended, 60)


@contextlib.contextmanager
def stuttering(pid: int, off_s: float, on_s: float, *, sessions: bool = True) -> Iterator[None]:
    """Schedule a process (or the sessions of a responder) off for `off_s` after every `on_s`."""
    over = threading.Event()

    def stutter() -> None:
        while not over.wait(on_s):
            targets = children(pid) if sessions else [pid]
            for target in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(target, signal.SIGSTOP)
            time.sleep(off_s)
            for target in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(target, signal.SIGCONT)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Ends:
    """The two namespaces, and the relay's process where there is one."""

    near: str
    far: str
    relay: subprocess.Popen[str] | None = None

    def probe(self, port: int, name: str, *arguments: str) -> dict[str, object]:
        """Run a probe from the near end; its JSON document."""
        command = [*self.inside(self.near), sys.executable, "-c", MAIN, "probe", name]
        done = subprocess.run(
            [*command, "--to", f"{FAR}:{port}", "--json", *arguments],
            capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        document: dict[str, object] = json.loads(done.stdout)
        return document

    @staticmethod
    def inside(namespace: str) -> list[str]:
        return ["ip", "netns", "exec", namespace]


def values(document: dict[str, object]) -> dict[str, float]:
    """The numbers of a probe's JSON document."""
    found = document["values"]
    assert isinstance(found, dict)
    return {name: quantity["value"] for name, quantity in found.items()}


@contextlib.contextmanager
def joined(*, relay: bool = False, drop_every: int = 0) -> Iterator[Ends]:
    """Two namespaces that reach each other, by a veth pair or by a relay; nothing is left of them."""
    near, far = f"probe-near-{os.getpid()}", f"probe-far-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        for name in (near, far):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        carrier = stack.enter_context(_relay(near, far, drop_every)) if relay else None
        if not relay:
            _ip("link", "add", "end", "netns", near, "type", "veth", "peer", "name", "end", "netns", far)
        for name, own, other in ((near, NEAR, FAR), (far, FAR, NEAR)):
            _ip("-n", name, "addr", "add", own, "peer", other, "dev", "end")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "end", "up", "txqueuelen", "4000")
        yield Ends(near, far, carrier)


def shape(namespace: str, *qdisc: str) -> None:
    """Give the end in this namespace a root qdisc."""
    subprocess.run(["tc", "-n", namespace, "qdisc", "add", "dev", "end", "root", *qdisc], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=20)


@contextlib.contextmanager
def _relay(near: str, far: str, drop_every: int) -> Iterator[subprocess.Popen[str]]:
    names = [f"pr{os.getpid() % 10**6}{end}" for end in "nf"]
    command = [sys.executable, __file__, *names, str(drop_every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as relay:
        assert relay.stdout is not None
        assert relay.stdout.readline() == "ready\n"
        try:
            for name, namespace in zip(names, (near, far), strict=True):
                _ip("link", "set", name, "netns", namespace, "name", "end")
            yield relay
        finally:
            relay.kill()


def _carry(names: list[str], drop_every: int) -> None:
    """Copy packets between two tun devices, dropping every `drop_every`th long one from the first (0 = none)."""
    ends = []
    for name in names:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
        ends.append(end)
    print("ready", flush=True)
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    other = dict(zip(ends, reversed(ends), strict=True))
    seen = 0
    while True:
        for end, _ in poll.poll():
            with contextlib.suppress(OSError):
                while packet := os.read(end, 1 << 16):
                    if drop_every and end == ends[0] and len(packet) > 500:
                        seen += 1
                        if not seen % drop_every:
                            continue
                    with contextlib.suppress(OSError):
                        os.write(other[end], packet)


if __name__ == "__main__":
    _carry(sys.argv[1:3], int(sys.argv[3]))
