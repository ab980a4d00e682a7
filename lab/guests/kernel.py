"""The guests' kernel: fetched once as a Debian package, unpacked, never installed."""

from __future__ import annotations

import lzma
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.errors import PreparationError, ToolError
from lab.processes import call

_PACKAGE = "linux-image-amd64"  # the cloud flavour has no 9p
# In the order in which they need each other. Those that a kernel has built in have no file, and need none.
DRIVERS = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover",
    "virtio_net", "virtio_blk", "virtio_console", "netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay", "crc16",
    "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4", "xen-netfront", "xen-blkfront",
)  # fmt: skip
_NEEDED = ("9p", "9pnet_virtio", "virtio_net")
_XZ = b"\xfd7zXZ\0"
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Kernel:
    """An uncompressed kernel, and the folder of its drivers."""

    vmlinux: Path
    modules: Path


def fetch_kernel(cache: Path) -> Kernel:
    """The kernel in this folder, downloaded when it is not there; PreparationError when that fails."""
    kernel = Kernel(cache / "vmlinux", cache / "modules")
    if platform.machine() != "x86_64":
        raise PreparationError(f"the lab has guests for x86_64 only, this host is {platform.machine()}")
    if not kernel.vmlinux.is_file():
        with tempfile.TemporaryDirectory(dir=cache) as name:
            _fetch(Path(name), kernel)
    return kernel


def _fetch(directory: Path, kernel: Kernel) -> None:
    try:
        depends = call(["apt-cache", "depends", "--important", _PACKAGE]).split()
        package = next((word for word in depends if word.startswith("linux-image-") and word != _PACKAGE), None)
        if package is None:
            raise PreparationError(f"apt knows no {_PACKAGE}: apt-get update")
        call(["apt-get", "download", package], directory=directory, timeout_s=600.0)
        archive = next(directory.glob("*.deb"))
        call(["dpkg-deb", "--extract", str(archive), str(directory / "tree")], timeout_s=600.0)
        compressed = next((directory / "tree" / "boot").glob("vmlinuz-*"))
    except (ToolError, StopIteration) as error:
        raise PreparationError(f"the guests' kernel cannot be fetched (Debian package {_PACKAGE}): {error}") from None
    shutil.rmtree(kernel.modules, ignore_errors=True)
    kernel.modules.mkdir()
    for driver in DRIVERS:
        for file in (directory / "tree").glob(f"**/{driver}.ko*"):
            (kernel.modules / f"{driver}.ko").write_bytes(_plain(file))
    missing = [driver for driver in _NEEDED if not (kernel.modules / f"{driver}.ko").is_file()]
    if missing:
        raise PreparationError(f"{package} has no driver {missing[0]}, which the guests need")
    unpacked = directory / "vmlinux"
    unpacked.write_bytes(uncompressed(compressed.read_bytes()))
    os.replace(unpacked, kernel.vmlinux)  # noqa: PTH105 - last: where it is, everything is


def uncompressed(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage that is packed with xz, as Debian's is (kernel: scripts/extract-vmlinux)."""
    start = image.find(_XZ)
    while start >= 0:
        try:
            unpacked = lzma.LZMADecompressor().decompress(image[start:])
        except lzma.LZMAError:
            unpacked = b""
        if unpacked.startswith(_ELF):
            return unpacked
        start = image.find(_XZ, start + 1)
    raise PreparationError("the kernel is packed in a way that the lab does not know")


def _plain(driver: Path) -> bytes:
    """A driver's bytes; newer Debians compress them."""
    data = driver.read_bytes()
    return lzma.decompress(data) if driver.suffix == ".xz" else data
