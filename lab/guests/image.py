"""What a guest boots: a Debian kernel out of its package, and a first root with busybox, drivers and the agent.

A guest on this host sees the host's own files (virtio-9p), so it has every program at the same path and in the same
version. Where that is impossible (Xen), the image holds the programs, with the libraries and files that they need.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path

from lab.errors import PreparationError, ToolError
from lab.guests.cpio import RamDiskEntry, initramfs
from lab.guests.kernel import DRIVERS, Kernel, fetch_kernel
from lab.processes import call
from profiler.files import write_whole

AGENT = Path(__file__).with_name("agent.py")
PORT = "cotenant.agent"  # the virtio-serial port of the agent
TCP_PORT = 7077  # where there is no such port
HOST_TAG, SCRATCH_TAG = "host", "scratch"  # 9p shares: all of the host's files, and the campaign's own
_AGENT_IN_GUEST = "/run/agent.py"
# Guests that see the host's files have them as their root, below a layer in memory that takes what is written.
_INIT = f"""\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /bin /sbin /host /top /new
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do insmod "/modules/$module" || echo "no driver $module"; done
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
case " $(cat /proc/cmdline) " in *" cotenant.probe "*) echo "{{ready}}"; poweroff -f ;; esac
if [ -e /self-contained ]; then
    address=$(sed -n 's/.*cotenant\\.address=\\([^ ]*\\).*/\\1/p' /proc/cmdline)
    ip link set lo up
    for _ in $(seq 100); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
    ip addr add "$address" dev eth0
    ip link set eth0 up
    mount -t tmpfs tmpfs /new
    cp -a /programs/. /new/
    cp -a /bin/. /new/bin/
else
    mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose {HOST_TAG} /host
    mount -t tmpfs tmpfs /top
    mkdir /top/upper /top/work
    mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work overlay /new
fi
mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp /new/root
for folder in proc sys dev; do mount --move /$folder /new/$folder; done
mount -t tmpfs tmpfs /new/run
cp /agent.py /new{_AGENT_IN_GUEST}
exec switch_root /new "$python" -I -S -B {_AGENT_IN_GUEST} "$port"
"""
READY = "the guest's kernel and drivers are up"
_LOADER_CACHE = Path("/etc/ld.so.cache")  # where the loader looks for libraries outside its own folders
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


@dataclass(frozen=True, slots=True)
class BootImage:
    """What a guest boots: an uncompressed kernel, which an emulated CPU need not unpack, and an initramfs."""

    kernel: Path
    initramfs: Path


def cache_directory() -> Path:
    """Where kernel and images are kept between campaigns."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base, "cotenant", "guests") if base else Path("/var/cache/cotenant/guests")


def shared_image() -> BootImage:
    """The image for guests that see this host's files; PreparationError says what is missing."""
    return _image([], cache_directory())


def build_image(programs: Sequence[str], cache: Path | None = None) -> BootImage:
    """An image that holds these programs, Python for the agent, and the libraries that they need."""
    return _image([*programs, _python()], cache or cache_directory())


def _image(programs: Sequence[str], cache: Path) -> BootImage:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        kernel = fetch_kernel(cache)
        paths = [_program(name) for name in programs]
        key = hashlib.sha256(" ".join(map(str, paths)).encode()).hexdigest()[:8] if paths else "shared"
        target = cache / f"initramfs-{key}.cpio"
        write_whole(target, _archive(kernel, paths))
    except (OSError, ToolError) as error:
        raise PreparationError(f"the guests' image cannot be made: {error}") from None
    return BootImage(kernel.vmlinux, target)


def _archive(kernel: Kernel, programs: Sequence[Path]) -> bytes:
    busybox = _program("busybox")
    port, python = (str(TCP_PORT) if programs else PORT), _python()
    init = _INIT.replace("{ready}", READY).replace("$python", python).replace("$port", port)
    drivers = [name for name in DRIVERS if (kernel.modules / f"{name}.ko").is_file()]  # others are built in
    entries = {
        "bin/busybox": RamDiskEntry.file(busybox.read_bytes(), executable=True),
        "init": RamDiskEntry.file(init.encode(), executable=True),
        "agent.py": RamDiskEntry.file(AGENT.read_bytes()),
        "modules/order": RamDiskEntry.file("".join(f"{name}.ko\n" for name in drivers).encode()),
    }
    for library in libraries([busybox]):
        entries[f"{library}"[1:]] = RamDiskEntry.file(library.read_bytes(), executable=True)
    for name in drivers:
        entries[f"modules/{name}.ko"] = RamDiskEntry.file((kernel.modules / f"{name}.ko").read_bytes())
    if programs:
        entries |= {"self-contained": RamDiskEntry.file(b""), "programs/bin": RamDiskEntry.folder()}
        cache = [path for path in (_LOADER_CACHE,) if path.is_file()]
        for path in [*programs, *libraries(programs), *agent_modules(), *cache]:
            entries[f"programs{path}"] = RamDiskEntry.file(path.read_bytes(), executable=os.access(path, os.X_OK))
    return initramfs(entries)


def libraries(programs: Iterable[Path]) -> list[Path]:
    """The shared libraries of these programs, and the loader, at the paths where the loader finds them."""
    paths: dict[Path, None] = {}
    for program in programs:
        try:
            printed = call(["ldd", str(program)])
        except ToolError:
            continue  # a static program, or a script
        paths |= dict.fromkeys(Path(path) for path in _LIBRARY.findall(printed))
    return list(paths)


def agent_modules() -> list[Path]:
    """Files of the standard library that the agent needs, those for Python's own start included."""
    finder = ModuleFinder()
    finder.run_script(str(AGENT))
    for name in ("encodings.utf_8", "encodings.ascii", "encodings.latin_1", "codecs", "io", "site", "zipimport"):
        finder.import_hook(name)
    files = {Path(file) for module in finder.modules.values() if (file := getattr(module, "__file__", None))}
    return sorted(file for file in files - {AGENT} if file.is_file())


def _python() -> str:
    """The interpreter itself, behind the links of a virtual environment."""
    return str(Path(sys.executable).resolve())


def _program(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        package = {"busybox": "busybox-static"}.get(name, name)
        raise PreparationError(f"{name} is not installed: apt-get install {package}")
    return Path(path)
