"""The lab as the tests use it: guests that serve and spin, clients, and the profiler at work inside Dom0."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.emulated_xen.dom0_channel import Dom0Answer, Dom0Error, Dom0Order
from lab.emulated_xen.guests import put
from lab.emulated_xen.machine import XenMachine
from lab.emulated_xen.parts import XenParts
from lab.processes import wait_until
from tests.xen.xen_guest import GUEST_FILES, guest_image
from tests.xen.xen_scene import Guest, Profiled, Scene
from tests.xen.xen_witness import GuestTimes, Traced, Witness

REPOSITORY = Path(__file__).parents[2]
_ATTEMPTS = 5  # to make a guest answer or get busy
# In an emulated guest about one CGI process in thirty dies of a segmentation fault while the CPU is contended, in runs
# of several: its server then answers nothing.
_AGAIN = ("--retry", "30", "--retry-delay", "1", "--retry-max-time", "60", "--retry-all-errors")
_BUSY_IDLE_PERCENT = 20.0
_WORK = "/tmp"
_PRODUCT = "/opt/cotenant"
_SAMPLES, _STOP, _RECORD = (f"{_WORK}/{name}" for name in ("witness.jsonl", "witness.stop", "recording.json"))
_GUEST_UP_S = 180.0
_CONFIG = """name = "{name}"
type = "pv"
kernel = "/guest/vmlinux"
ramdisk = "{work}/guest.img"
extra = "console=hvc0 quiet loglevel=3 panic=-1 address={address}"
memory = 128
vcpus = 1
cpus = "1"
vif = ['mac=00:16:3e:00:00:{number:02x},bridge=xenbr0']
on_crash = "destroy"
"""


class Lab:
    """Two guests on one machine that was booted, each pinned to pCPU 1."""

    def __init__(self, machine: XenMachine, parts: XenParts) -> None:
        self.dom0 = machine.dom0
        self._machine = machine
        put(self.dom0, f"{_WORK}/guest.img", guest_image(parts))
        put(self.dom0, f"{_WORK}/witness.py", (GUEST_FILES / "witness.py").read_bytes())
        self._put_product()

    def _put_product(self) -> None:
        """The profiler as it stands in the repository, with nothing else of it: it must need nothing else."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for file in sorted((REPOSITORY / "profiler").rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    tar.add(file, file.relative_to(REPOSITORY))
        self.dom0.run(["mkdir", "-p", _PRODUCT]).checked()
        self.dom0.run(["tar", "-xzC", _PRODUCT], stdin=archive.getvalue()).checked()
        self.dom0.run(["python3", "-m", "compileall", "-q", _PRODUCT], timeout_s=300).checked()

    def create(self, name: str, number: int) -> Guest:
        """Start guest `number` (1 to 9) and wait until it serves."""
        address = f"10.9.0.1{number}"
        config = _CONFIG.format(name=name, address=address, number=number, work=_WORK)
        put(self.dom0, f"{_WORK}/{name}.cfg", config.encode())
        self.dom0.run(["xl", "create", "-q", f"{_WORK}/{name}.cfg"], timeout_s=_GUEST_UP_S).checked()
        guest = Guest(name, int(self.dom0.run(["xl", "domid", name]).checked().text), address)
        if not wait_until(lambda: self._answers(guest), _GUEST_UP_S):
            console = self.dom0.run(["tail", "-n", "20", f"/var/log/xen/console/guest-{name}.log"]).text
            raise Dom0Error(f"guest {name} does not serve; its console says: {console}")
        return guest

    def _answers(self, guest: Guest) -> bool:
        try:
            self._fetch(guest, "/1k", timeout_s=2)
        except subprocess.CalledProcessError:
            return False
        return True

    def _fetch(self, guest: Guest, path: str, timeout_s: int = 20) -> str:
        argv = ["curl", "-sSf", "--max-time", str(timeout_s), *_AGAIN, f"http://{guest.address}{path}"]
        return subprocess.run(self._machine.client(argv), capture_output=True, text=True, check=True).stdout

    def _packets(self, guest: Guest) -> int:
        path = f"/sys/class/net/{guest.vif}/statistics/rx_packets"
        return int(self.dom0.run(["cat", path]).checked().text)

    def times(self, guest: Guest) -> GuestTimes:
        """What the guest itself says about its time; its server's answer is empty now and then."""
        for _ in range(_ATTEMPTS):
            if said := self._fetch(guest, "/cgi-bin/stat").strip():
                return GuestTimes.parse(said)
        raise Dom0Error(f"{guest.name} does not tell its times")

    @contextmanager
    def spinning(self, *guests: Guest, seconds: int = 600) -> Iterator[None]:
        """These guests' CPUs are busy; ended here, and by themselves after `seconds`."""
        try:
            for guest in guests:
                self._spin(guest, seconds)
            yield
        finally:
            for guest in guests:
                self._fetch(guest, "/cgi-bin/spin?0")

    def _spin(self, guest: Guest, seconds: int) -> None:
        """Make a guest busy and see that it is: what a CGI script leaves behind does not always outlive it."""
        for _ in range(_ATTEMPTS):
            self._fetch(guest, f"/cgi-bin/spin?{seconds}")
            before = self.times(guest)
            time.sleep(2)
            if self.times(guest).idle_percent(before) < _BUSY_IDLE_PERCENT:
                return
        raise Dom0Error(f"{guest.name} does not get busy")

    @contextmanager
    def serving(self, *requests: tuple[Guest, str], seconds: int = 600) -> Iterator[None]:
        """One client per guest fetches a path again and again, each time over a new connection.

        More would fill Dom0's one CPU in emulation, and its tools would run into their time limits.
        """
        clients, before = [], {guest: self._packets(guest) for guest, _ in requests}
        for guest, path in requests:
            argv = ["ab", "-q", "-t", str(seconds), "-n", "100000000", "-c", "1", f"http://{guest.address}{path}"]
            clients.append(
                subprocess.Popen(self._machine.client(argv), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            )
        try:
            served = wait_until(lambda: all(self._packets(guest) > before[guest] + 20 for guest, _ in requests), 120)
            if ended := [client for client in clients if client.poll() is not None]:
                raise Dom0Error(f"a client gave up: {ended[0].communicate()[1].decode()[-500:]}")
            if not served:
                raise Dom0Error("guests are asked and do not answer")
            yield
        finally:
            for client in clients:
                client.terminate()
                client.communicate(timeout=20)

    def profile(self, interval_s: float = 5.0) -> Profiled:
        """Run `cotenant-profiler once` in Dom0 beside the witness."""
        return self.end_profile(self.start_profile(interval_s))

    def observe(self, *guests: Guest) -> Scene:
        """Profile while these guests go on with what they do, and ask them for their times."""
        before = {guest.name: self.times(guest) for guest in guests}
        profiled = self.profile()
        return Scene(profiled, before, {guest.name: self.times(guest) for guest in guests})

    def start_profile(self, interval_s: float) -> tuple[Dom0Order, Dom0Order]:
        """Start the witness, then the profiler."""
        self.dom0.run(["rm", "-f", _SAMPLES, _STOP, _RECORD]).checked()
        witness = self.dom0.start(["python3", f"{_WORK}/witness.py", _SAMPLES, _STOP, "2"], timeout_s=300)
        wait_until(lambda: self.dom0.run(["test", "-s", _SAMPLES]).code == 0, 300)
        argv = ["python3", "-m", "profiler.cli", "once", "--backend", "xen", "--json", "--record", _RECORD]
        return witness, self.dom0.start([*argv, "--every", str(interval_s)], folder=_PRODUCT, timeout_s=180)

    def end_profile(self, started: tuple[Dom0Order, Dom0Order]) -> Profiled:
        """Wait for what `start_profile` started."""
        witness, profiler = started
        said = self.dom0.wait(profiler)
        self.dom0.run(["touch", _STOP]).checked()
        self.dom0.wait(witness).checked()
        said.checked()
        recording, samples = (self.dom0.run(["cat", path]).checked().text for path in (_RECORD, _SAMPLES))
        return Profiled(json.loads(said.text), json.loads(recording), Witness.parse(samples))

    @contextmanager
    def changed(self, change: Sequence[str], undo: Sequence[str]) -> Iterator[None]:
        """Run one command in Dom0 now and another one in the end."""
        self.dom0.run(change).checked()
        try:
            yield
        finally:
            self.dom0.run(undo).checked()

    def profiler(self, *arguments: str, under: Sequence[str] = ()) -> Dom0Answer:
        """Run `cotenant-profiler` in Dom0, by the program `under` where one is named."""
        return self.dom0.run([*under, "python3", "-m", "profiler.cli", *arguments], folder=_PRODUCT, timeout_s=180)

    def trace(self, seconds: int = 5) -> Traced:
        """What xenalyze makes of a scheduler trace of its own."""
        path, info = f"{_WORK}/own.trace", self.dom0.run(["xl", "info"]).checked().text
        mhz = float(re.findall(r"^cpu_mhz +: ([\d.]+)$", info, re.MULTILINE)[0])  # the clock of the time stamps
        self.dom0.run(["xentrace", "-D", "-e", "0x0002f000", "-T", str(seconds), path]).checked()
        summary = self.dom0.run(["xenalyze", "--cpu-hz", f"{mhz / 1000}G", "--summary", path]).checked()
        return Traced.parse(summary.text)
