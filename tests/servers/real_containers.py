"""Real containers of podman in a storage of their own, with a socket at which cAdvisor finds their names."""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lab.control_groups import remove_group
from lab.processes import call
from tests.image.containers import Containers, containers
from tests.servers.running import NotInstalled, Running, found

TOOLS = ("podman", "crun", "unshare", "nsenter", "setpriv", "busybox", "ip")
IMAGE = "localhost/tiny"
NEIGHBOUR = "10.79.0.1"
LONGEST_S = 300  # that a container lives, also when no test is left to remove it
# Of a process that runs as root without CAP_SYS_RESOURCE, which cannot raise its limits.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


@dataclass(frozen=True, slots=True)
class RealContainer:
    """`group` is its control group below each tree, `id` what podman calls it in full."""

    id: str
    pid: int
    group: str
    interface: str

    def sent_bytes(self) -> int:
        """What came out of its network, as the host's end of the pair counted it."""
        return int(Path(f"/sys/class/net/{self.interface}/statistics/rx_bytes").read_text("ascii"))

    def disk_bytes(self) -> int:
        """What its first process and those that it waited for read from disks and wrote there (proc(5), io)."""
        lines = Path(f"/proc/{self.pid}/io").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("read_bytes", "write_bytes")))


class Podman:
    """`socket` is where its API answers."""

    def __init__(self, storage: Containers) -> None:
        self._storage = storage
        self._made: list[str] = []
        self._parents: list[str] = []
        self.socket = storage.folder / "podman.sock"
        argv = storage.podman_argv("system", "service", "--time", "0", f"unix://{self.socket}")
        self._service = Running(argv, self.socket.exists, storage.folder / "log", drop=False)

    def start(self) -> None:
        """An image of nothing but busybox, and the API."""
        busybox = Path(found("busybox"))
        tree = self._storage.folder / "tiny.tar"
        with tarfile.open(tree, "w") as archive:
            archive.add(busybox, "bin/busybox")
        if b"/ld-linux" in busybox.read_bytes():
            raise NotInstalled(f"{busybox} is not static: install busybox-static")
        self._storage.podman("import", "--quiet", str(tree), IMAGE)
        self._service.start()

    def run(self, name: str, script: str, *options: str, parent: str | None = None) -> RealContainer:
        """A container that runs a script of busybox, with a network whose neighbour takes all and answers nothing."""
        if parent is not None:
            self._parents.append(parent)
            options = (*options, "--cgroup-parent", f"/{parent}")
        argv = [
            "run",
            "--detach",
            "--name",
            name,
            "--network",
            "none",
            "--timeout",
            str(LONGEST_S),
            *LIMITS,
            *options,
            IMAGE,
        ]
        self._made.append(name)
        identifier = self._storage.podman(*argv, "/bin/busybox", "sh", "-c", script).stdout.strip()
        pid = int(self._storage.podman("inspect", "--format", "{{.State.Pid}}", name).stdout)
        interface = f"ct{uuid.uuid4().hex[:8]}"
        call(["ip", "link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
        call(["ip", "link", "set", interface, "addrgenmode", "none", "up"])
        inside = (
            "link set eth0 addrgenmode none up\naddr add 10.79.0.2/24 dev eth0\n"
            f"neigh add {NEIGHBOUR} lladdr 02:00:00:00:00:01 dev eth0 nud permanent\n"
        )
        call(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"], inside)
        group = f"{parent or 'libpod_parent'}/libpod-{identifier}"
        return RealContainer(identifier, pid, group, interface)

    def remove(self) -> None:
        for name in self._made:
            self._storage.podman("rm", "--force", "--time", "0", name, check=False)
        for parent in self._parents:
            with suppress(FileNotFoundError):
                remove_group(f"{parent}/conmon")
            remove_group(parent)
        self._service.stop()


@contextmanager
def podman() -> Iterator[Podman]:
    """Podman and what it runs, gone at the end; NotInstalled says what is missing."""
    with containers(TOOLS) as storage:
        made = Podman(storage)
        try:
            made.start()
            yield made
        finally:
            made.remove()
