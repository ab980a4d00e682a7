"""The lab's guest: a Debian kernel taken out of its package and an initramfs of busybox, both kept between runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / "var" / "libvirt-lab"
_GUEST = Path(__file__).with_name("guest")
_KERNEL_PACKAGE = "linux-image-cloud-amd64"
_BUSYBOX = Path("/bin/busybox")
# in the order in which they need each other
_MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover",
    "virtio_net", "virtio_blk",
)  # fmt: skip
_TIMEOUT_S = 120.0


class LabError(Exception):
    """The lab cannot be set up on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a guest boots."""

    kernel: Path
    initramfs: Path


def run(argv: list[str], cwd: Path | None = None, text: str = "", timeout_s: float = _TIMEOUT_S) -> str:
    """Run a tool to its end and return what it printed; LabError repeats its complaint."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            cwd=cwd,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{argv[0]}: {error}") from None
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv[:8])} failed: {done.stderr.strip()[-400:]}")
    return done.stdout


def image() -> Image:
    """Kernel and initramfs in `var/libvirt-lab`; the kernel is downloaded once, the initramfs made anew (fast)."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel = CACHE / "vmlinuz"
    modules = CACHE / "modules"
    if not kernel.is_file() or not modules.is_dir():
        _fetch_kernel(kernel, modules)
    return Image(kernel, _pack(modules, CACHE / "initramfs.cpio"))


def _fetch_kernel(kernel: Path, modules: Path) -> None:
    """Unpack vmlinuz and the virtio modules of Debian's cloud kernel; nothing is installed."""
    depends = run(["apt-cache", "depends", "--important", _KERNEL_PACKAGE]).split()
    package = next((word for word in depends if word.startswith("linux-image-") and word != _KERNEL_PACKAGE), None)
    if package is None:
        raise LabError(f"apt knows no {_KERNEL_PACKAGE} (apt-get update)")
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        directory = Path(name)
        run(["apt-get", "download", package], cwd=directory)
        (archive,) = directory.glob("*.deb")
        run(["dpkg-deb", "-x", str(archive), "tree"], cwd=directory)
        shutil.rmtree(modules, ignore_errors=True)
        modules.mkdir()
        for module in _MODULES:
            found = next((directory / "tree").glob(f"**/{module}.ko*"), None)
            if found is not None:  # else it is built in
                _plain(found, modules / f"{module}.ko")
        (vmlinuz,) = (directory / "tree" / "boot").glob("vmlinuz-*")
        vmlinuz.rename(kernel)


def _plain(source: Path, target: Path) -> None:
    """Copy a module; newer Debians compress them."""
    if source.suffix == ".xz":
        run(["xz", "--decompress", "--keep", str(source)])
        source = source.with_suffix("")
    shutil.copyfile(source, target)


def _pack(modules: Path, target: Path) -> Path:
    """Pack busybox, the modules and the scripts of `guest/` into a cpio archive."""
    if not _BUSYBOX.is_file():
        raise LabError("there is no /bin/busybox (apt-get install busybox-static)")
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name)
        for folder in ("bin", "modules", "www/cgi-bin"):
            (root / folder).mkdir(parents=True)
        _executable(_BUSYBOX, root / "bin" / "busybox")
        _executable(_GUEST / "init", root / "init")
        for script in ("spin", "write"):
            _executable(_GUEST / script, root / "www" / "cgi-bin" / script)
        there = [f"{module}.ko" for module in _MODULES if (modules / f"{module}.ko").is_file()]
        for module in there:
            shutil.copyfile(modules / module, root / "modules" / module)
        (root / "modules" / "order").write_text("\n".join(there) + "\n", encoding="ascii")
        names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
        packed = root.with_suffix(".cpio")
        run(["cpio", "--quiet", "--create", "--format=newc", f"--file={packed}"], cwd=root, text=names)
        packed.replace(target)
    return target


def _executable(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755)
