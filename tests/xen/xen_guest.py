"""The guest of the tests: a web server with two files and two programs, all in its initial RAM disk."""

from __future__ import annotations

from pathlib import Path

from lab.emulated_xen.machine import small_root
from lab.emulated_xen.parts import XenParts
from lab.guests.cpio import RamDiskEntry, initramfs

GUEST_FILES = Path(__file__).parent / "guest"


def guest_image(parts: XenParts) -> bytes:
    """The whole of a guest: a web server with two files and two programs."""
    programs = "mount insmod ip dd httpd cat killall setsid timeout awk"
    entries = small_root(parts, "guest", programs, GUEST_FILES / "guest-init")
    for name in ("stat", "spin"):
        script = (GUEST_FILES / f"{name}.cgi").read_bytes()
        entries[f"www/cgi-bin/{name}"] = RamDiskEntry.file(script, executable=True)
    return initramfs(entries)
