"""Builds what Xen boots: hypervisor, kernel, drivers and Dom0's disk, from this machine's own Debian packages."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import PreparationError
from lab.guests.kernel import uncompressed

DOM0_PACKAGES = (
    "xen-system-amd64", "linux-image-amd64", "python3", "busybox-static",
    "bridge-utils", "ethtool", "iproute2", "kmod", "procps", "udev",
)  # fmt: skip
DISK_DRIVERS = ("virtio_pci", "virtio_blk", "ext4")
GUEST_DRIVERS = ("xen-netfront", "xen-blkfront")
_DOM0_DRIVERS = (
    "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xen-privcmd", "xenfs", "xen-netback", "xen-blkback", "loop", "bridge",
    "virtio_net", "virtio_console", "sch_htb", "cls_u32",
)  # fmt: skip
_UNUSED = ("boot", "var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/lib/udev/hwdb.bin")
_BUILD_S = 1200.0
_STEP_S = 300.0


@dataclass(frozen=True, slots=True)
class XenParts:
    """What was built, as files: `drivers` holds .ko files and, per use, the order to load them in."""

    hypervisor: Path
    kernel: Path
    disk: Path
    busybox: Path
    drivers: Path

    @classmethod
    def below(cls, folder: Path) -> XenParts:
        names = ("hypervisor", "kernel", "disk.ext4", "busybox", "drivers")
        return cls(*(folder / name for name in names))

    def drivers_for(self, use: str) -> list[Path]:
        """Driver files for `disk` or `guest`, in the order in which they must be loaded."""
        return [self.drivers / name for name in (self.drivers / use).read_text().split()]


def prepare(cache: Path) -> XenParts:
    """Build the parts below `cache`, or take those that this very recipe built before.

    Raises PreparationError with the failed step's last words.
    """
    cache.mkdir(parents=True, exist_ok=True)
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    finished = cache / f"parts-{recipe}"
    with _locked(cache / "lock"):
        if not finished.is_dir():
            for unfinished in cache.glob("building-*"):  # of a run that was killed
                shutil.rmtree(unfinished, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as temporary:
                made = Path(temporary) / "parts"
                made.mkdir()
                _build(Path(temporary), XenParts.below(made))
                made.rename(finished)
    return XenParts.below(finished)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(work: Path, parts: XenParts) -> None:
    root = work / "root"
    _bootstrap(root, work)
    (version,) = [path.name for path in (root / "usr/lib/modules").iterdir()]
    (hypervisor,) = (root / "boot").glob("xen-*.gz")
    parts.hypervisor.write_bytes(gzip.decompress(hypervisor.read_bytes()))
    kernel = uncompressed((root / f"boot/vmlinuz-{version}").read_bytes())
    parts.kernel.write_bytes(kernel)
    shutil.copy(root / "bin/busybox", parts.busybox)
    parts.drivers.mkdir()
    for use, names in (("disk", DISK_DRIVERS), ("guest", GUEST_DRIVERS)):
        files = _with_dependencies(root, version, names)
        for file in files:
            shutil.copy(file, parts.drivers / file.name)
        (parts.drivers / use).write_text("\n".join(file.name for file in files))
    _slim(root, version)
    (root / "guest").mkdir()
    shutil.copy(parts.kernel, root / "guest/vmlinux")  # xl create loads it; unpacking it there would take 20 s
    megabytes = 300 + _size(root) // 1_000_000
    _run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root), str(parts.disk), f"{megabytes}M"])


def _bootstrap(root: Path, work: Path) -> None:
    release = _os_release()
    arguments = [
        "mmdebstrap", "--variant=minbase", "--mode=root", "--aptopt=APT::Install-Recommends false",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*", f"--include={','.join(DOM0_PACKAGES)}", release, str(root),
    ]  # fmt: skip
    sources = machine_sources(Path("/etc/apt"), release)
    if not sources:
        raise PreparationError(f"no source of {release} in /etc/apt: where should Dom0's packages come from?")
    for number, text in enumerate(sources):
        file = work / f"sources-{number}"
        file.write_text(text)
        arguments.append(str(file))
    _run(arguments, _BUILD_S)


def machine_sources(apt: Path, release: str) -> list[str]:
    """The entries of `apt` (sources.list, *.list, *.sources) that are of this release: what this machine trusts."""
    found: list[str] = []
    suite = re.compile(rf"\s{re.escape(release)}(-(updates|security))?(\s|$)")
    for file in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        lines = file.read_text().splitlines() if file.is_file() else []
        entries = [line for line in lines if line.startswith("deb ") and suite.search(line)]
        found += ["\n".join(entries) + "\n"] if entries else []
    for file in sorted((apt / "sources.list.d").glob("*.sources")):
        paragraphs = re.split(r"\n\s*\n", file.read_text())
        found += [text + "\n" for text in paragraphs if re.search(rf"(?m)^Suites:.*{suite.pattern}", text)]
    return found


def _os_release() -> str:
    text = Path("/etc/os-release").read_text()
    match = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    if not match or not re.search(r"^ID=debian$", text, re.MULTILINE):
        raise PreparationError("the lab is built from Debian's packages, and this is no Debian")
    return match[1]


def _with_dependencies(root: Path, version: str, names: tuple[str, ...]) -> list[Path]:
    """The .ko files of drivers and of what they need, in the order to load them."""
    files: dict[Path, None] = {}
    for name in names:
        for line in _run(["chroot", str(root), "modprobe", "-S", version, "--show-depends", name]).splitlines():
            words = line.split()
            if words and words[0] == "insmod":
                files[root / words[1].lstrip("/")] = None
    return list(files)


def _slim(root: Path, version: str) -> None:
    """Remove what Dom0 never uses: a smaller disk is made and read faster."""
    kept = {path.resolve() for path in _with_dependencies(root, version, DISK_DRIVERS + _DOM0_DRIVERS)}
    for module in (root / f"usr/lib/modules/{version}/kernel").rglob("*.ko"):
        if module.resolve() not in kept:
            module.unlink()
    _run(["chroot", str(root), "depmod", version])
    for name in _UNUSED:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (root / "boot").mkdir()


def _size(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_symlink())


def _run(argv: list[str], timeout_s: float = _STEP_S) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreparationError(f"{argv[0]}: {error}") from None
    if done.returncode != 0:
        raise PreparationError(f"{argv[0]} failed with {done.returncode}: {' / '.join(done.stderr.splitlines()[-3:])}")
    return done.stdout
