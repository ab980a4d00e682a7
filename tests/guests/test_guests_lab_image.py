"""The self-contained image, as Xen's domains boot it, here in QEMU: no shared files, and an agent behind TCP."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.errors import RunError
from lab.guests.channel import AgentChannel
from lab.guests.domain import connect_from
from lab.guests.image import TCP_PORT, build_image
from lab.guests.qemu_command import QEMU
from lab.workloads import CpuWorkload, Site

pytestmark = pytest.mark.guests

ADDRESS = "10.77.0.10"
BOOT_WITHIN_S = 150.0


@pytest.fixture
def channel(able: None, tmp_path: Path) -> Iterator[AgentChannel]:
    """To the agent of a guest that has nothing but its image, on a tap in a namespace of its own."""
    image = build_image(["sysbench"], tmp_path_cache(tmp_path))
    name = f"zz-image-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    command = [
        "ip", "netns", "exec", name, QEMU, "-nodefaults", "-display", "none", "-no-reboot", "-m", "320",
        "-accel", "tcg", "-cpu", "max", "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-serial", "stdio",
        "-append", f"console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable cotenant.address={ADDRESS}/24",
        "-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,romfile=",
    ]  # fmt: skip
    console = (tmp_path / "console").open("wb")
    guest = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=console)
    try:
        made = AgentChannel(_connected(name, guest), "image", (tmp_path / "console").read_text)
        assert made.wait_up(30)
        yield made
        made.close()
    finally:
        guest.kill()
        guest.wait()
        console.close()
        subprocess.run(["ip", "netns", "delete", name], check=True)


def tmp_path_cache(tmp_path: Path) -> Path:
    """A cache of its own that has the kernel of the common one."""
    from lab.guests.image import cache_directory

    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("vmlinux", "modules"):
        (cache / name).symlink_to(cache_directory() / name)
    return cache


def _connected(namespace: str, guest: subprocess.Popen[bytes]) -> socket.socket:
    deadline = time.monotonic() + BOOT_WITHIN_S
    inside = ["ip", "-n", namespace]
    add = [*inside, "addr", "add", "10.77.0.1/24", "dev", "tap0"]
    while subprocess.run(add, capture_output=True, check=False).returncode:
        assert guest.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    subprocess.run([*inside, "link", "set", "tap0", "up"], check=True)
    while True:
        try:
            return connect_from(f"/run/netns/{namespace}", ADDRESS, TCP_PORT)
        except OSError:
            assert guest.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_program_works_in_a_guest_that_has_only_its_image(channel: AgentChannel, tmp_path: Path) -> None:
    workload = CpuWorkload()
    site = Site(0, tmp_path, tmp_path, ADDRESS, 1)
    program = channel.start(workload.work(site, 1, None), Path("/"))
    assert channel.wait(program, 60) == 0, program.errors()
    assert workload.read(program.output(), None).throughput > 5
    assert channel.read("/proc/mounts").count("9p") == 0
    with pytest.raises(RunError, match="No such file"):
        channel.read(str(Path(__file__)))  # it sees nothing of this host
