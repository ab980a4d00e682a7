"""Programs under benchmark: started, scraped as by Prometheus, with resource use from the kernel's accounting."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from research.benchmarks import measuring

_PACKAGE = "prometheus-node-exporter"
_READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer to a scrape: how long it took, and its size."""

    seconds: float
    size: int


class WatchedProgram:
    """A program with a page of metrics; `name` is what tables call it."""

    def __init__(self, name: str, command: Sequence[str], port: int) -> None:
        self.name = name
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def cpu_s(self) -> float:
        """CPU time of it and of its threads so far."""
        return measuring.cpu_s(self._process.pid)

    @property
    def children_s(self) -> float:
        """CPU time of the programs that it started and that ended."""
        return measuring.ended_children_cpu_s(self._process.pid)

    @property
    def peak_mb(self) -> float:
        """The most memory it ever had resident (VmHWM)."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def wait(self) -> None:
        """Until its page answers; RuntimeError when it ends or takes too long."""
        deadline = time.monotonic() + _READY_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.scrape()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"{self.name} does not answer at {self._url}")

    def scrape(self) -> Scrape:
        begin = time.perf_counter()
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            size = len(answer.read())
        return Scrape(time.perf_counter() - begin, size)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Scraper:
    """Scrapes programs every `interval_s` while the block lasts; `scrapes` holds their answers by name."""

    def __init__(self, programs: Sequence[WatchedProgram], interval_s: float) -> None:
        self.scrapes: dict[str, list[Scrape]] = {program.name: [] for program in programs}
        self._programs = programs
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._interval_s / 2
        while not self._end.wait(max(0.0, due - time.monotonic())):
            for program in self._programs:
                self.scrapes[program.name].append(program.scrape())
            due += self._interval_s


def agent(port: int, *options: str) -> WatchedProgram:
    """The agent as operators run it, with its exporter."""
    command = [sys.executable, "-m", "profiler.cli", "run", "--listen", f"127.0.0.1:{port}", *options]
    return WatchedProgram("cotenant-profiler run", command, port)


def node_exporter(port: int, folder: Path) -> WatchedProgram:
    """Debian's node exporter with its default collectors; unpacked into `folder` where it is not installed.

    Raises RuntimeError where it cannot be had.
    """
    program = shutil.which(_PACKAGE) or _unpack(folder)
    return WatchedProgram("prometheus-node-exporter", [program, f"--web.listen-address=127.0.0.1:{port}"], port)


def _unpack(folder: Path) -> str:
    try:
        subprocess.run(["apt-get", "download", "-qq", _PACKAGE], cwd=folder, check=True, capture_output=True)
        (package,) = folder.glob(f"{_PACKAGE}_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"{_PACKAGE} cannot be had ({error}): apt-get install {_PACKAGE}") from None
    return str(folder / "unpacked" / "usr" / "bin" / _PACKAGE)
