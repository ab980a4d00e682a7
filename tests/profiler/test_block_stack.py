"""Stacked block devices: each request counts once, and a limit of some devices is none of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.backends import LxcBackend
from profiler.backends.sources import LiveSource
from profiler.backends.stalls import BlockStack
from profiler.collectors import collect
from tests.profiler.fake_host import FakeHost, host_of_shop

DISK, SECOND, VOLUME, CRYPT, MIRROR, POOL = "259:0", "8:0", "252:0", "252:1", "9:127", "252:9"
SERVICE_BYTES = "/cg/blkio/lxc/shop/blkio.throttle.io_service_bytes_recursive"
MB = 1_000_000


def _lie(host: FakeHost, upper: str, *lowers: str) -> FakeHost:
    for lower in lowers:
        host.files[f"/sys/dev/block/{upper}/slaves/of-{lower}/dev"] = f"{lower}\n"
    return host


def _stack(*layers: tuple[str, ...]) -> BlockStack:
    host = FakeHost()
    for upper, *lowers in layers:
        _lie(host, upper, *lowers)
    return BlockStack(host)


@pytest.mark.parametrize(
    ("layers", "counted", "moved"),
    [
        ([(VOLUME, DISK)], {DISK: 100, VOLUME: 100}, 100),
        ([(VOLUME, DISK)], {VOLUME: 100, DISK: 130}, 130),
        ([(VOLUME, DISK)], {VOLUME: 0, DISK: 130}, 130),
        ([(CRYPT, VOLUME), (VOLUME, DISK)], {DISK: 100, VOLUME: 100, CRYPT: 100}, 100),
        ([(CRYPT, VOLUME), (VOLUME, DISK)], {DISK: 100, CRYPT: 100}, 100),
        ([(VOLUME, DISK), (CRYPT, DISK)], {DISK: 70, VOLUME: 30, CRYPT: 40}, 70),
        ([(MIRROR, DISK, SECOND)], {MIRROR: 50, DISK: 50, SECOND: 50}, 50),
        ([(MIRROR, DISK, SECOND)], {MIRROR: 50, DISK: 25, SECOND: 25}, 50),
        ([(POOL, VOLUME, CRYPT), (VOLUME, DISK), (CRYPT, DISK)], {POOL: 60, VOLUME: 60, DISK: 60}, 60),
        ([], {DISK: 3, SECOND: 4}, 7),
        ([(VOLUME, VOLUME)], {VOLUME: 5, DISK: 1}, 6),
    ],
    ids=[
        "a volume on a disk", "and the disk itself", "a volume that is not counted", "three layers",
        "a layer that is not counted", "two volumes", "a mirror", "stripes", "a thin pool", "two disks", "a circle",
    ],
)  # fmt: skip
def test_a_request_counts_once_however_many_devices_it_passes(
    layers: list[tuple[str, ...]], counted: dict[str, int], moved: int
) -> None:
    assert sum(_stack(*layers).once(counted).values()) == moved


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_on_a_volume_moves_what_it_asked_for(version: int) -> None:
    host = _lie(host_of_shop(version), VOLUME, DISK)
    backend = LxcBackend(host, host="h")

    def moved(mb: int) -> None:
        line = {
            1: f"{{0}} Read {mb * MB}\n{{0}} Write 0\n{{0}} Total {mb * MB}\n",
            2: f"{{0}} rbytes={mb * MB} wbytes=0 rios={mb} wios=0 dbytes=0 dios=0\n",
        }[version]
        path = SERVICE_BYTES if version == 1 else "/cg/lxc/shop/io.stat"
        host.files[path] = line.format(DISK) + line.format(VOLUME)

    moved(500)
    first = backend.read_counters()
    moved(850)
    host.later(10.0)
    samples = collect(first, backend.read_counters()).samples
    assert {s.value for s in samples if s.instance == "shop" and s.metric == "disk_mb_s"} == {35.0}


@pytest.mark.parametrize(
    ("layers", "limits", "used", "limit"),
    [
        ([], {DISK: 9}, {DISK: 5}, 9),
        ([], {DISK: 9}, {}, 9),
        ([], {DISK: 9}, {DISK: 5, SECOND: 1}, None),
        ([], {DISK: 9}, {DISK: 5, SECOND: 0}, 9),
        ([], {DISK: 9}, {DISK: 5, "(unknown)": 8}, 9),
        ([], {DISK: 9, SECOND: 3}, {DISK: 5, SECOND: 1}, 12),
        ([(VOLUME, DISK)], {DISK: 9}, {DISK: 5, VOLUME: 5}, 9),
        ([(VOLUME, DISK)], {VOLUME: 9}, {DISK: 5, VOLUME: 5}, 9),
        ([(VOLUME, DISK)], {VOLUME: 9}, {DISK: 7, VOLUME: 5}, None),
        ([(VOLUME, DISK)], {VOLUME: 9, DISK: 4}, {DISK: 5, VOLUME: 5}, 4),
        ([(MIRROR, DISK, SECOND)], {DISK: 9}, {MIRROR: 5, DISK: 5, SECOND: 5}, None),
        ([(VOLUME, DISK), (CRYPT, DISK)], {DISK: 9}, {VOLUME: 5, CRYPT: 5, DISK: 10}, 9),
    ],
)
def test_a_limit_holds_where_every_device_in_use_has_one(
    layers: list[tuple[str, ...]], limits: dict[str, int], used: dict[str, int], limit: int | None
) -> None:
    assert _stack(*layers).limit(limits, used) == limit


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_one_direction_is_no_limit_of_a_container(version: int) -> None:
    host = host_of_shop(version)
    if version == 1:
        host.files["/cg/blkio/lxc/shop/blkio.throttle.write_bps_device"] = ""
    else:
        host.files["/cg/lxc/shop/io.max"] = "8:0 rbps=2000000 wbps=max riops=max wiops=max\n"
    backend = LxcBackend(host, host="h")
    assert backend.read_isolation(backend.list_instances()[0]).disk_limit_mb_s is None


def test_a_volume_on_a_partition_lies_on_its_disk_and_links_are_followed(tmp_path: Path) -> None:
    disk = tmp_path / "devices/pci/block/sda"
    (disk / "sda2").mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (disk / "sda2/dev").write_text("8:2\n")
    (disk / "sda2/partition").write_text("2\n")
    slaves = tmp_path / "block/252:0/slaves"
    slaves.mkdir(parents=True)
    (slaves / "sda2").symlink_to(disk / "sda2")

    class Rooted(LiveSource):
        def read(self, path: str) -> str:
            return super().read(path.replace("/sys/dev", str(tmp_path)))

        def names(self, path: str) -> list[str]:
            return super().names(path.replace("/sys/dev", str(tmp_path)))

    assert BlockStack(Rooted()).below("252:0") == ("8:0",)


def test_a_number_that_is_given_to_another_volume_is_looked_up_again() -> None:
    host = _lie(FakeHost(), VOLUME, DISK)
    stack = BlockStack(host)
    assert stack.below(VOLUME) == (DISK,)
    host.files = {}
    _lie(host, VOLUME, SECOND)
    host.later(61.0)
    assert stack.below(VOLUME) == (SECOND,)


def test_what_lies_below_is_read_once_a_minute_and_is_bounded() -> None:
    host = FakeHost()
    _lie(host, VOLUME, *(f"8:{number}" for number in range(500)))
    reads: list[str] = []
    plain = host.read

    def read(path: str) -> str:
        reads.append(path)
        return plain(path)

    host.read = read  # type: ignore[method-assign]
    stack = BlockStack(host)
    for _ in range(30):
        stack.once({VOLUME: 5, "8:3": 5})
    assert len(reads) <= 2 * 64
