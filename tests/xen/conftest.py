"""The Xen lab's switch and fixtures: real Xen is only booted where COTENANT_TEST_XEN=1 asks for it (make test-xen)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.campaign import EmulatedXen
from lab.emulated_xen.machine import boot
from lab.emulated_xen.parts import prepare
from tests.xen.xen_lab import REPOSITORY, Lab
from tests.xen.xen_needs import missing
from tests.xen.xen_scene import Guest, Scene
from tests.xen.xen_witness import Traced

ASKED = os.environ.get("COTENANT_TEST_XEN") == "1"
CACHE = REPOSITORY / "var" / "xen-lab"
collect_ignore_glob = [] if ASKED else ["test_xen_on_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xen: boots real Xen in QEMU (root, Debian packages and minutes needed)")


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with the scheduler that the module names as SCHEDULER, or the machine that it names as SHAPE.

    Skips with the reason where none can be built.
    """
    if reason := missing():
        pytest.skip(reason)
    parts = prepare(CACHE)
    named = vars(request.module)
    shape = named.get("SHAPE") or EmulatedXen(2, dom0_vcpus=1, memory_mb=1536, scheduler=named["SCHEDULER"])
    with boot(parts, tmp_path_factory.mktemp(f"xen-{shape.pcpus}-{shape.scheduler}"), shape) as machine:
        yield Lab(machine, parts)


@pytest.fixture(scope="module")
def vm1(lab: Lab) -> Guest:
    return lab.create("vm1", 1)


@pytest.fixture(scope="module")
def vm2(lab: Lab, vm1: Guest) -> Guest:
    return lab.create("vm2", 2)


@pytest.fixture(scope="module")
def shared(lab: Lab, vm1: Guest, vm2: Guest) -> tuple[Scene, Traced]:
    """Both keep pCPU 1 busy; what a scheduler trace of its own says follows under the same load."""
    with lab.spinning(vm1, vm2):
        return lab.observe(vm1, vm2), lab.trace()


@pytest.fixture
def recording_path(tmp_path: Path) -> Path:
    """Where a recording made in Dom0 goes: COTENANT_XEN_RECORDING names a file for one that is to be kept."""
    return Path(os.environ.get("COTENANT_XEN_RECORDING") or tmp_path / "recording.json")
