"""Measures pairs of programs on hosts that differ only in what an inventory does not say, and probes each host.

`python -m research.probed_hosts DIRECTORY` (root, control groups v1, iproute2; some five minutes) writes a dataset with
a `probes.csv`. A host is a control group with a CPU quota and a write limit for the disk, and an uplink of its own rate
between two network namespaces; the platforms table calls all of them alike, as an inventory would. Everything that it
makes is removed at the end, and traffic stays inside of the two namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

GROUP, INSIDE, OUTSIDE = "cotenant-probed", "cnt-probed-in", "cnt-probed-out"
ADDRESS, PORT = "198.18.77.2", 5777  # RFC 2544: for measurements, routed nowhere
PERIOD_US = 100_000
SECONDS, SETTLE = 1.0, 0.3
QUOTAS, RATES, DISKS = (200, 60), (1000, 60), (0, 20)  # % of a CPU; Mbit/s; MB/s, 0 = no limit
WORKLOADS = ("cpu", "net", "disk")
PROGRAM = """
import mmap, os, socket, sys, time
kind, address, port, folder = sys.argv[1:]
done = 0
def busy():
    x = 0
    for i in range(4000):
        x += i * i
if kind == "net":
    link, block = socket.create_connection((address, int(port))), bytes(65536)
if kind == "disk":
    name = os.path.join(folder, str(os.getpid()))
    disk, page = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 262144)
print("ready", flush=True)
begin, end = map(float, sys.stdin.readline().split())
while (now := time.time()) < end:
    if kind == "cpu":
        busy()
    elif kind == "net":
        link.sendall(block)
    else:
        os.pwrite(disk, page, (done % 64) * 262144)
    done += now >= begin
if kind == "disk":
    os.close(disk)
    os.unlink(name)
print(done, time.process_time())
"""
SINK = """
import selectors, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
ready = selectors.DefaultSelector(); ready.register(server, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is server: ready.register(server.accept()[0], selectors.EVENT_READ)
        elif not key.fileobj.recv(1 << 20): ready.unregister(key.fileobj); key.fileobj.close()
"""


@dataclass(frozen=True, slots=True)
class ProbedHost:
    """One host: its quota in % of a CPU, its uplink in Mbit/s, its write limit in MB/s (0 = none)."""

    quota: int
    rate: int
    disk: int

    @property
    def name(self) -> str:
        """A name that says nothing to a model."""
        return f"host-{QUOTAS.index(self.quota)}{RATES.index(self.rate)}{DISKS.index(self.disk)}"


def _call(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)


def _inside(command: Sequence[str]) -> list[str]:
    """The command in the group and the inner namespace: who is started moves itself there first."""
    groups = [f"/sys/fs/cgroup/{kind}/{GROUP}/cgroup.procs" for kind in ("cpu", "blkio")]
    enter = (
        "import os, sys\n"
        "for group in sys.argv[1:3]: open(group, 'w').write(str(os.getpid()))\n"
        "os.execvp(sys.argv[3], sys.argv[3:])"
    )
    return [sys.executable, "-c", enter, *groups, "ip", "netns", "exec", INSIDE, *command]


@contextlib.contextmanager
def _room() -> Iterator[Path]:
    """Groups, namespaces, the link between them and a sink at its far end."""
    sink = None
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        try:
            for kind in ("cpu", "blkio"):
                Path(f"/sys/fs/cgroup/{kind}/{GROUP}").mkdir(exist_ok=True)
            for name in (INSIDE, OUTSIDE):
                _call("ip", "netns", "add", name)
            _call(
                "ip",
                "link",
                "add",
                "probed0",
                "netns",
                INSIDE,
                "type",
                "veth",
                "peer",
                "name",
                "probed1",
                "netns",
                OUTSIDE,
            )
            for name, link, address in ((INSIDE, "probed0", "198.18.77.1"), (OUTSIDE, "probed1", ADDRESS)):
                _call("ip", "-n", name, "addr", "add", f"{address}/30", "dev", link)
                _call("ip", "-n", name, "link", "set", link, "up")
                _call("ip", "-n", name, "link", "set", "lo", "up")
            command = ["ip", "netns", "exec", OUTSIDE, sys.executable, "-c", SINK, ADDRESS, str(PORT)]
            sink = subprocess.Popen(command)
            yield Path(folder)
        finally:
            if sink:
                sink.send_signal(signal.SIGKILL)
                sink.wait()
            for name in (INSIDE, OUTSIDE):
                _call("ip", "netns", "del", name, check=False)
            for kind in ("cpu", "blkio"):
                with contextlib.suppress(OSError):
                    Path(f"/sys/fs/cgroup/{kind}/{GROUP}").rmdir()


def _become(host: ProbedHost, device: str) -> None:
    quota = host.quota * PERIOD_US // 100
    Path(f"/sys/fs/cgroup/cpu/{GROUP}/cpu.cfs_quota_us").write_text(str(quota))
    for way in ("read", "write"):
        limit = Path(f"/sys/fs/cgroup/blkio/{GROUP}/blkio.throttle.{way}_bps_device")
        limit.write_text(f"{device} {host.disk * 1_000_000}")
    for name, link in ((INSIDE, "probed0"), (OUTSIDE, "probed1")):
        _call(
            "tc",
            "-n",
            name,
            "qdisc",
            "replace",
            "dev",
            link,
            "root",
            "tbf",
            "rate",
            f"{host.rate}mbit",
            "burst",
            "128kb",
            "latency",
            "20ms",
        )


def _together(kinds: Sequence[str], folder: Path) -> list[tuple[float, float]]:
    """Units of work per second and % of a CPU of each, run at the same time: nobody begins before all are there."""
    started = [
        subprocess.Popen(
            _inside([sys.executable, "-c", PROGRAM, kind, ADDRESS, str(PORT), str(folder)]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for kind in kinds
    ]  # fmt: skip
    for one in started:
        _stream(one.stdout).readline()
    begin = time.time() + SETTLE
    for one in started:
        _stream(one.stdin).write(f"{begin} {begin + SECONDS}\n")
        _stream(one.stdin).flush()
    found = []
    for one in started:
        done, cpu_s = (one.communicate(timeout=60)[0] or "0 0").split()
        found.append((float(done) / SECONDS, 100 * float(cpu_s) / (SECONDS + SETTLE)))
    return found


def _stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("a program was started without its pipes")
    return stream


def _probe(name: str, *options: str) -> Mapping[str, Mapping[str, float]]:
    command = _inside([sys.executable, "-m", "profiler.cli", "probe", name, "--json", *options])
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    values: dict[str, dict[str, float]] = json.loads(answer.stdout)["values"] if answer.stdout else {}
    return values


def _probes(folder: Path) -> dict[str, Mapping[str, Mapping[str, float]]]:
    far = [
        "ip",
        "netns",
        "exec",
        OUTSIDE,
        sys.executable,
        "-m",
        "profiler.cli",
        "probe",
        "serve",
        "--listen",
        f"{ADDRESS}:9406",
    ]
    responder = subprocess.Popen(far, stdout=subprocess.PIPE, text=True)
    try:
        _stream(responder.stdout).readline()
        return {
            "cpu-share": _probe("cpu-share", "--seconds", "1.5"),
            "disk": _probe("disk", "--dir", str(folder), "--files", "4", "--count", "20", "--seconds", "4"),
            "rtt": _probe("rtt", "--to", f"{ADDRESS}:9406", "--udp", "--count", "60", "--per-second", "60"),
            "tcp": _probe("tcp", "--to", f"{ADDRESS}:9406", "--megabytes", "20", "--seconds", "2"),
        }
    finally:
        responder.terminate()
        responder.wait()


def main() -> None:
    """Measure all hosts and write the dataset."""
    parser = argparse.ArgumentParser(prog="python -m research.probed_hosts", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="of the dataset")
    directory = parser.parse_args().directory
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # which removes what was made
    directory.mkdir(parents=True, exist_ok=True)
    number = Path("/var/tmp").stat().st_dev  # noqa: S108
    device = f"{os.major(number)}:{os.minor(number)}"
    hosts = [ProbedHost(*one) for one in itertools.product(QUOTAS, RATES, DISKS)]
    rows: list[tuple[object, ...]] = []
    probed: list[tuple[object, ...]] = []
    profiles: list[tuple[str, str, float, str]] = []
    with _room() as folder:
        for host in hosts:
            _become(host, device)
            probed += [
                (host.name, probe, name, one["value"], one["unit"])
                for probe, values in _probes(folder).items()
                for name, one in values.items()
            ]
            alone = {kind: _together([kind], folder)[0] for kind in WORKLOADS}
            if host == hosts[0]:
                profiles = [(kind, "cpu", alone[kind][1], "%") for kind in WORKLOADS]
                profiles += [("net", "net_mbit", alone["net"][0] * 65536 * 8e-6, "Mbit/s")]
                profiles += [("disk", "disk_mb_s", alone["disk"][0] * 0.262144, "MB/s")]
            for pair in itertools.combinations_with_replacement(WORKLOADS, 2):
                for at, (kind, (rate, _)) in enumerate(zip(pair, _together(pair, folder), strict=True), start=1):
                    rows.append(
                        (
                            ":".join(pair),
                            host.name,
                            f"{kind}.{at}",
                            kind,
                            1,
                            "throughput",
                            alone[kind][0],
                            rate,
                            "1/s",
                            1,
                        )
                    )
            sys.stdout.write(f"{host} measured\n")
            sys.stdout.flush()
    _write(
        directory / "colocations.csv",
        "run platform instance workload vcpus outcome solo colocated unit repeat",
        [one for one in rows if one[6]],
    )
    _write(directory / "probes.csv", "platform probe name value unit", probed)
    _write(
        directory / "profiles.csv",
        "platform workload load scope metric value unit",
        [("", kind, 1, "instance", metric, value, unit) for kind, metric, value, unit in profiles],
    )
    _write(
        directory / "platforms.csv",
        "platform kind pcpus memory_mb nic_mbit",
        [(host.name, "lxc", 2, 24106, 1000) for host in hosts],
    )
    (directory / "dataset.yaml").write_text(
        "name: probed-hosts\norigin: measured\nlearn: false\nlicence: CC-BY-4.0\n"
        f"kernel: {os.uname().sysname} {os.uname().release}\ndate: '{time.strftime('%Y-%m-%d', time.gmtime())}'\n"
        "notes: 'Pairs of small programs on one machine, made into hosts by a CPU quota, a shaped uplink and a limit\n"
        "  of the disk. The platforms table tells none of these; probes.csv holds what probes found on each.'\n",
        encoding="utf-8",
    )


def _write(path: Path, header: str, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split())
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)


if __name__ == "__main__":
    main()
