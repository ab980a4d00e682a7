"""Weights, caps, CPU sets and disk limits as real programs feel them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import control_groups
from lab.control_groups import GroupMaker, device_of
from lab.errors import PreparationError
from lab.instances.containers import LabContainer
from lab.processes import wait_until
from lab.workloads.disk import takes_direct
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import MAX_WEIGHT, IsolationSettings
from tests.lab.container_run import containers, placed

pytestmark = pytest.mark.lab
BUSY = [sys.executable, "-I", "-S", "-c", "print(1, flush=True)\nwhile True: pass"]


def _shares(settings: Sequence[IsolationSettings], cpus: Sequence[int], seconds: float) -> list[float]:
    """CPUs that a busy loop in each of these containers got, 1.0 = one CPU."""
    entries = [placed(number, own, cpus=(cpus[number],)) for number, own in enumerate(settings)]
    with containers(entries) as made:
        loops = [container.start_inside(BUSY) for container in made]
        assert wait_until(lambda: all(loop.output() for loop in loops), 30)  # beside heavy loops others start late
        time.sleep(0.3)
        before, begin = _used(made), time.monotonic()
        time.sleep(seconds)
        after, took_s = _used(made), time.monotonic() - begin
        for loop in loops:
            loop.stop(0)
    return [(now - then) / 1e9 / took_s for then, now in zip(before, after, strict=True)]


def _used(made: Sequence[LabContainer]) -> list[int]:
    groups = find_groups(LiveSource())
    return [groups.cpu_ns(container.group) for container in made]


@pytest.mark.parametrize("ratio", [1, 2, 10])
@pytest.mark.measured
def test_weights_are_shares_of_a_contended_cpu(ratio: int) -> None:
    heavy = MAX_WEIGHT  # beside it whatever else runs on this host hardly counts
    weights = [IsolationSettings(weight=heavy // ratio), IsolationSettings(weight=heavy)]
    light, heavier = _shares(weights, [0, 0], 2.0)
    assert heavier / light == pytest.approx(ratio, rel=0.05)


@pytest.mark.measured
def test_a_weight_is_no_cap() -> None:
    alone, *_ = _shares([IsolationSettings(weight=MAX_WEIGHT)], [0], 1.0)
    assert alone > 0.9


@pytest.mark.measured
def test_caps_are_kept_from_a_tenth_to_nine_tenths_of_a_cpu() -> None:
    caps = [10, 30, 50, 90]
    settings = [IsolationSettings(cap_percent=cap, weight=MAX_WEIGHT) for cap in caps]
    assert _shares(settings, [0, 0, 0, 1], 3.0) == pytest.approx([cap / 100 for cap in caps], rel=0.05)


@pytest.mark.measured
def test_a_cap_holds_whoever_competes() -> None:
    capped = IsolationSettings(cap_percent=30, weight=MAX_WEIGHT)
    settings = [capped, IsolationSettings(weight=MAX_WEIGHT // 4)]
    assert _shares(settings, [0, 0], 2.0)[0] == pytest.approx(0.3, rel=0.05)


def test_programs_stay_on_the_cpus_of_their_instance() -> None:
    with containers([placed(0, cpus=(1,))]) as (container,):
        loop = container.start_inside(BUSY)
        assert wait_until(lambda: bool(loop.output()), 10)
        assert os.sched_getaffinity(loop.pid) == {1}
        with pytest.raises(OSError, match="Invalid argument"):
            os.sched_setaffinity(loop.pid, {0})
        loop.stop(0)


def _copied_mb_s(way: str, limit_mb_s: float | None) -> float:
    """What `dd` reached by its own clock, with requests past the page cache."""
    with containers([placed(0, IsolationSettings(disk_limit_mb_s=limit_mb_s))]) as (container,):
        file = container.site.directory / "data"
        file.write_bytes(os.urandom(1 << 20) * 16)
        subprocess.run(["sync", file], check=True)  # what is written late would count as the first request's
        if not takes_direct(file):
            pytest.skip(f"the file system of {container.site.directory} takes no direct requests")
        ends = [f"if={file}", "of=/dev/null", "iflag=direct"]
        if way == "write":
            ends = ["if=/dev/zero", f"of={file}", "oflag=direct", "conv=notrunc"]
        copying = container.start_inside(["dd", *ends, "bs=64k", "count=200"])
        assert wait_until(lambda: copying.returncode is not None, 60)
        copying.check()
        seconds = float(copying.errors().rsplit("copied, ", 1)[1].split()[0])
        copying.stop(0)
    return 200 * 65_536 / 1e6 / seconds


@pytest.mark.parametrize("way", ["write", "read"])
@pytest.mark.measured
def test_a_disk_limit_holds_for_direct_requests(way: str) -> None:
    assert _copied_mb_s(way, 8) == pytest.approx(8, rel=0.10)
    assert _copied_mb_s(way, None) > 12  # and it is the limit that held them back


def test_a_limit_is_set_on_the_disk_of_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = device_of(Path("/var/tmp"))
    assert own is not None
    assert not Path("/sys/dev/block", own, "partition").exists()
    number = Path("/var/tmp").stat().st_dev
    partition = tmp_path / "devices" / "sda" / "sda2"
    partition.mkdir(parents=True)
    (partition / "partition").write_text("2\n")
    (partition.parent / "dev").write_text("8:0\n")
    (tmp_path / f"{os.major(number)}:{os.minor(number)}").symlink_to(partition)
    monkeypatch.setattr(control_groups, "_BLOCK_DEVICES", tmp_path)
    assert device_of(Path("/var/tmp")) == "8:0"


def test_files_in_memory_have_no_disk_and_a_limit_there_is_refused(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], check=True)
    try:
        assert device_of(tmp_path) is None
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    with pytest.raises(PreparationError, match="a disk limit needs files on a disk"):
        GroupMaker().make("cotenant-never-made", (0,), IsolationSettings(disk_limit_mb_s=1), None)
