"""A volume of the lab for real: its limit is shared, its files are its own, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.campaign import Volume
from lab.errors import PreparationError
from lab.volume import TOOLS, daemon_group, mounted_volume
from lab.workloads.base import fill_file
from tests.lab.container_run import prepared_maker, programs_of, registered

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)) or not Path("/dev/fuse").exists(),
        reason=f"needs {', '.join(sorted(TOOLS))} and /dev/fuse",
    ),
]
_REQUESTS = 60
_READ = """
import mmap, os, sys
block = mmap.mmap(-1, 4096)
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
for number in range(int(sys.argv[2])):
    os.preadv(file, [block], 4096 * number)
"""


def test_all_users_of_a_volume_share_its_limit_and_nothing_is_left_of_it() -> None:
    requests_s = 60.0
    with registered() as (registry, parent):
        scratch = registry.directory(parent)
        scratch.mkdir()
        with mounted_volume(registry, prepared_maker(), scratch, Volume(1000.0, requests_s), 64.0) as folder:
            assert folder.stat().st_dev != parent.stat().st_dev
            for name in ("one", "two"):
                fill_file(folder / name, 4096 * _REQUESTS)
            began = time.monotonic()
            readers = [
                subprocess.Popen([sys.executable, "-c", _READ, str(folder / name), str(_REQUESTS)])
                for name in ("one", "two")
            ]
            assert [reader.wait(60) for reader in readers] == [0, 0]
            # a tenth of a second's requests may come at once
            assert time.monotonic() - began >= 2 * _REQUESTS / requests_s - 0.2
            assert programs_of(daemon_group(registry))
        assert str(scratch) not in Path("/proc/self/mounts").read_text()
        assert programs_of(registry.run) == []


def test_a_host_that_cannot_mount_a_volume_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failing = tmp_path / "mount"
    failing.write_text("#!/bin/sh\necho mount: permission denied >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with registered() as (registry, parent):
        scratch = registry.directory(parent)
        scratch.mkdir()
        volume = mounted_volume(registry, prepared_maker(), scratch, Volume(10.0), 32.0)
        with pytest.raises(PreparationError, match=r"a volume cannot be mounted here: .*permission denied"), volume:
            raise AssertionError("unreachable")
        assert programs_of(registry.run) == []
