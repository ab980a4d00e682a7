"""A libvirtd of the lab's own: started without systemd, in private namespaces, stopped and killed at will."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from lab.errors import LabError
from lab.processes import call
from tests.libvirt.image import CACHE
from tests.libvirt.private import STATE, folder

_READY_S = 20.0
_FIRST_ANSWER_S = 60.0  # libvirtd asks QEMU what it can do, once; its cache is kept between runs
_QEMU_CONF = """user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
remember_owner = 0
"""
_LIBVIRTD_CONF = """auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_ro_perms = "0777"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""


class Daemon:
    """Namespaces with a libvirtd in them; everything ends with `close`, or with this process.

    One with a `name` takes itself for another host: by its host name, and by an id of its own.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        # a short path: a socket's has at most 107 characters
        self.directory = Path(tempfile.mkdtemp(prefix="cotenant-libvirt-", dir="/tmp"))
        self.directory.chmod(0o755)  # the socket for reading is for every user, as on a real host
        self._write_settings()
        holder = [sys.executable, "-I", "-S", str(Path(__file__).with_name("private.py")), str(self.directory)]
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--propagation", "private", *holder, *([name] if name else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            raise LabError("the lab's namespaces cannot be made (run as root)")
        self._libvirtd: subprocess.Popen[bytes] | None = None

    @property
    def inside(self) -> list[str]:
        """What to put before a command so that it runs in the lab's namespaces."""
        return ["nsenter", f"--target={self._holder.pid}", "--mount", "--net", "--uts", "--"]

    @property
    def uri(self) -> str:
        """Where libvirtd answers, for processes outside of the namespaces."""
        return f"qemu+unix:///system?socket={self.state}/libvirt-sock"

    @property
    def state(self) -> Path:
        """What is /run/libvirt inside."""
        return folder(self.directory, "/run/libvirt")

    @property
    def pid(self) -> int:
        assert self._libvirtd is not None
        return self._libvirtd.pid

    def start(self) -> None:
        """Start libvirtd and wait until it answers."""
        self._libvirtd = subprocess.Popen(
            [*self.inside, "libvirtd", "--pid-file", "/run/libvirt/libvirtd.pid"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _READY_S
        while not (self.state / "libvirt-sock").exists():
            if self._libvirtd.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"libvirtd does not start: {self.log()[-400:]}")
            time.sleep(0.02)
        self.virsh("version", timeout_s=_FIRST_ANSWER_S)

    def kill(self) -> None:
        """End libvirtd at once, as an out-of-memory killer would; guests go on."""
        if self._libvirtd is not None:
            self._libvirtd.kill()
            self._libvirtd.wait()
            self._libvirtd = None
            for socket in self.state.glob("libvirt-*sock*"):
                socket.unlink()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Libvirtd hangs meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def virsh(self, *arguments: str, text: str = "", timeout_s: float = 30.0) -> str:
        """Run virsh in the namespaces and return what it prints."""
        argv = [*self.inside, "virsh", "--quiet", "--connect", "qemu:///system", *arguments]
        return call(argv, text, timeout_s=timeout_s)

    def log(self) -> str:
        try:
            return (folder(self.directory, "/var/log/libvirt") / "libvirtd.log").read_text(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End libvirtd, all guests and the namespaces; the holder removes the folder too."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()
        self.kill()

    def _write_settings(self) -> None:
        for path in STATE:
            folder(self.directory, path).mkdir()
        settings = folder(self.directory, "/etc/libvirt")
        (settings / "qemu.conf").write_text(_QEMU_CONF, encoding="ascii")
        own_id = f'host_uuid = "{uuid.uuid5(uuid.NAMESPACE_DNS, self._name)}"\n' if self._name else ""
        (settings / "libvirtd.conf").write_text(_LIBVIRTD_CONF + own_id, encoding="ascii")
        kept = CACHE / "capabilities"
        kept.mkdir(parents=True, exist_ok=True)
        cache = folder(self.directory, "/var/cache/libvirt")
        cache.rmdir()
        cache.symlink_to(kept)
