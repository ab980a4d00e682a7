"""Real, light containers to measure the agent beside: groups, namespaces with a veth pair, processes."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from types import TracebackType

from lab.control_groups import GroupMaker, device_of
from lab.processes import LabProcess, call
from lab.resource_registry import ResourceRegistry, clean
from profiler.observed import IsolationSettings

STATE = Path("/run/cotenant-benchmark")  # its own list: a lab run beside is no reason to refuse, and never cleaned here
MOST_PROCESSES = 3  # one, two or three in turn
# Wakes every quarter of a second, works for some microseconds and sends one datagram; perl-base is on every Debian.
_LIGHT = """
use Socket; for (1..$ARGV[0]-1) { fork || last }
socket(my $s, AF_INET, SOCK_DGRAM, 0); my $to = pack_sockaddr_in(9, inet_aton($ARGV[1]));
while (1) { my $n = 0; $n += $_ for 1..200; send($s, "x" x 1000, 0, $to); select(undef, undef, undef, 0.25) }
"""
_GATEWAY = "10.78.0.1"  # no instance has it: what is sent there is counted by the pair and ends at its host side
_MAC = "02:00:00:00:00:01"


class LightContainers:
    """Context manager: on entry `size` containers run, on exit nothing of them is left.

    Instance number n is named `<run>.crowd<n>`, its host side of the veth pair `interfaces[n]` is in this namespace.
    Raises LabError when something cannot be made (no root, no control groups).
    """

    def __init__(self, size: int, cpus: tuple[int, ...] = (0, 1), disk_limit_mb_s: float | None = None) -> None:
        self.size = size
        self._settings = IsolationSettings(disk_limit_mb_s=disk_limit_mb_s)
        self.interfaces: list[str] = []
        self.groups: list[str] = []
        self._cpus = cpus
        self._processes: list[LabProcess] = []

    @property
    def processes(self) -> int:
        """How many processes they have together."""
        return sum(1 + number % MOST_PROCESSES for number in range(self.size))

    def __enter__(self) -> LightContainers:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # two memory files per process that is started
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        clean(STATE)
        self._registry = ResourceRegistry(STATE)
        self._maker = GroupMaker()
        self._maker.prepare()
        self._folder = tempfile.TemporaryDirectory()
        try:
            for number in range(self.size):
                self._add(number)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _add(self, number: int) -> None:
        network, group = self._registry.network(str(number)), self._registry.group(f"crowd{number}")
        interface = f"ct{self._registry.run}p{number}"
        self._registry.made("network", network)
        call(["ip", "netns", "add", network])
        call(
            ["ip", "-batch", "-"],
            f"link add {interface} type veth peer name eth0 netns {network}\n"
            f"link set {interface} addrgenmode none up\n",
        )
        call(
            ["ip", "-n", network, "-batch", "-"],
            "link set lo up\nlink set eth0 addrgenmode none up\naddr add 10.78.0.2/24 dev eth0\n"
            f"neigh add {_GATEWAY} lladdr {_MAC} dev eth0 nud permanent\n",
        )
        self._registry.made("group", group)
        join = self._maker.make(group, self._cpus, self._settings, device_of(Path(self._folder.name)))
        command = ["perl", "-e", _LIGHT, str(1 + number % MOST_PROCESSES), _GATEWAY]
        process = LabProcess(command, groups=join, network=f"/run/netns/{network}", directory=Path(self._folder.name))
        self._processes.append(process)
        self.interfaces.append(interface)
        self.groups.append(group)

    def _remove(self) -> None:
        self._registry.remove_run()  # ends every member, children included
        for process in self._processes:
            process.stop(0)
        self._registry.close()
        self._folder.cleanup()
