"""The libvirt lab's fixtures; the whole folder runs only where COTENANT_TEST_LIBVIRT=1 says so (make test-libvirt)."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = ("libvirtd", "virsh", "qemu-system-x86_64", "busybox", "cpio", "wrk", "ip", "nsenter", "unshare", "setpriv")
ODD_NAME = "-web ü 2"  # spaces, letters beyond ASCII, and what looks like an option

collect_ignore_glob = [] if os.environ.get("COTENANT_TEST_LIBVIRT") == "1" else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "libvirt: boots real guests under a libvirtd of the test's own (root needed)")


def _missing() -> str:
    """Why this machine cannot run the lab, or nothing."""
    if os.geteuid() != 0:
        return "needs root: it makes namespaces, taps and control groups"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"needs {', '.join(lacking)}"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun"
    if importlib.util.find_spec("libvirt") is None:
        return "needs libvirt-python"
    return "needs two CPUs" if len(os.sched_getaffinity(0)) < 2 else ""


@pytest.fixture(scope="session")
def lab() -> Iterator[object]:
    """Two guests with one vCPU each."""
    reason = _missing()
    if reason:
        pytest.skip(reason)
    from tests.libvirt.guests import guests

    with guests(2, names=("shop", ODD_NAME)) as made:
        yield made


@pytest.fixture
def backend(lab: object) -> Iterator[object]:
    from tests.libvirt.measuring import open_backend

    opened = open_backend(lab)  # type: ignore[arg-type]
    yield opened
    opened.close()
