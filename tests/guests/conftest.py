"""Fixtures of the lab's guests; real ones are booted where COTENANT_TEST_GUESTS=1 says so (make test-guests)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_groups import GroupMaker
from lab.errors import LabError
from lab.resource_registry import ResourceRegistry

TOOLS = ("qemu-system-x86_64", "busybox", "mkfs.ext4", "ip", "tc", "nginx", "wrk", "fio", "sysbench", "iperf3")

collect_ignore_glob = [] if os.environ.get("COTENANT_TEST_GUESTS") == "1" else ["test_guests_lab_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guests: boots real guests in QEMU (root needed)")


def _missing() -> str:
    """Why this machine cannot have guests, or nothing."""
    if os.geteuid() != 0:
        return "needs root: it makes taps and control groups"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"needs {', '.join(lacking)}"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun"
    if len(os.sched_getaffinity(0)) < 2:
        return "needs two CPUs"
    from lab.guests.image import shared_image

    try:
        shared_image()
        GroupMaker()
    except LabError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def able() -> None:
    """Skips where guests cannot be had."""
    reason = _missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def lab(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A place for runs whose guests are kept over all tests."""
    from tests.guests.guest_runs import Lab

    folder = tmp_path_factory.mktemp("guests")
    registry = ResourceRegistry(folder / "state")
    try:
        scratch = registry.directory(folder)
        registry.made("directory", str(scratch))
        scratch.mkdir()
        yield Lab(registry, GroupMaker(), scratch)
    finally:
        registry.close()
