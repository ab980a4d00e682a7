"""What guests are made of: the archive they boot, the kernel out of its package, QEMU's command line."""

from __future__ import annotations

import lzma
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lab.campaign import GuestSettings
from lab.errors import PreparationError
from lab.guests import image, kernel, pool
from lab.guests.cpio import RamDiskEntry, initramfs
from lab.guests.image import BootImage, agent_modules, libraries
from lab.guests.machine import listing, make_disk
from lab.guests.qemu_command import GuestShape, qemu_command

SHAPE = GuestShape("guest0x1", 3, 2, 192, "tcg", vhost=False)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


def _unpack(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Name → mode and content, by the format's description (cpio(5), new ASCII format)."""
    found: dict[str, tuple[int, bytes]] = {}
    position = 0
    while True:
        header = archive[position : position + 110]
        assert header[:6] == b"070701"
        fields = [int(header[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
        begin = position + 110
        name = archive[begin : begin + fields[11] - 1].decode()
        content = -(-(begin + fields[11]) // 4) * 4
        if name == "TRAILER!!!":
            return found
        assert name not in found
        found[name] = (fields[1], archive[content : content + fields[6]])
        position = -(-(content + fields[6]) // 4) * 4


@given(st.dictionaries(st.lists(NAMES.filter(lambda name: name.strip(".")), min_size=1, max_size=3).map("/".join),
                       st.binary(max_size=40), max_size=6))  # fmt: skip
def test_an_archive_gives_back_every_file_and_the_folders_above_it(files: dict[str, bytes]) -> None:
    above = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    assume(not above & set(files))
    found = _unpack(initramfs({path: RamDiskEntry.file(content) for path, content in files.items()}))
    assert {path for path, (mode, _) in found.items() if stat.S_ISDIR(mode)} == above
    assert {path: content for path, (mode, content) in found.items() if stat.S_ISREG(mode)} == files
    assert all(path.rpartition("/")[0] in ["", *list(found)[:place]] for place, path in enumerate(found))


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_cpio_reads_the_archive(tmp_path: Path) -> None:
    tool = RamDiskEntry.file(b"#!/bin/sh\n", executable=True)
    entries = {"bin/tool": tool, "bin/other": RamDiskEntry.link("tool"), "empty": RamDiskEntry.folder()}
    subprocess.run(["cpio", "-i", "--quiet"], input=initramfs(entries), cwd=tmp_path, check=True)
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/other").readlink() == Path("tool")
    assert (tmp_path / "empty").is_dir()


def test_the_kernel_is_found_behind_what_looks_like_it() -> None:
    elf = b"\x7fELF" + bytes(range(256)) * 40
    packed = lzma.compress(elf, check=lzma.CHECK_CRC32)
    decoy = lzma.compress(b"not a kernel")
    assert kernel.uncompressed(b"MZ setup code\xfd7zXZ\0 not really" + decoy + packed + b"\0tail") == elf


@given(st.binary(max_size=200))
def test_an_image_without_a_kernel_is_refused(noise: bytes) -> None:
    with pytest.raises(PreparationError, match="packed in a way"):
        kernel.uncompressed(noise + b"\xfd7zXZ\0" + noise)


def test_a_kernel_that_cannot_be_fetched_is_an_error_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt
    with pytest.raises(PreparationError, match=r"the guests' kernel cannot be fetched .*apt-cache cannot be started"):
        kernel.fetch_kernel(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _command(scratch: Path) -> tuple[list[str], str]:
    """QEMU's command line, and its drive."""
    command = qemu_command(SHAPE, BootImage(Path("/k"), Path("/i")), scratch / "disk.raw", scratch, 5, 6)
    (drive,) = [part for part in command if part.startswith("if=none")]
    return command, drive


def test_commas_in_paths_do_not_become_options(tmp_path: Path) -> None:
    scratch = tmp_path / "a,readonly=on"
    command, drive = _command(scratch)
    assert drive.endswith(f"file={str(scratch).replace(',', ',,')}/disk.raw")
    shares = [part for part in command if part.startswith("local,")]
    assert any(f"path={str(scratch).replace(',', ',,')},mount_tag=scratch" in share for share in shares)


@pytest.mark.parametrize(("direct", "cache"), [(True, "cache=none"), (False, "cache=writeback")])
def test_a_drive_bypasses_the_page_cache_where_its_file_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool, cache: str
) -> None:
    monkeypatch.setattr("lab.guests.qemu_command.takes_direct", lambda _path: direct)
    assert cache in _command(tmp_path)[1]


@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="needs e2fsprogs")
def test_a_guests_disk_is_large_and_takes_little_space(tmp_path: Path) -> None:
    disk = tmp_path / "disk.raw"
    make_disk(disk)
    stat = disk.stat()
    assert stat.st_size >= 8 << 30
    assert stat.st_blocks * 512 < 200 << 20
    with disk.open("rb") as file:
        file.seek(1024 + 56)
        assert file.read(2) == b"\x53\xef"  # ext4's magic number


def test_a_changed_file_is_seen_in_the_listing(tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www/1kb.bin").write_bytes(b"1")
    before = listing(tmp_path)
    assert listing(tmp_path) == before
    (tmp_path / "www/1kb.bin").write_bytes(b"12")
    assert listing(tmp_path) != before


def test_libraries_of_a_program_are_those_the_loader_finds() -> None:
    found = libraries([Path(sys.executable).resolve()])
    assert any(path.name.startswith("libc.so") for path in found)
    assert any(path.name.startswith("ld-linux") for path in found)
    assert all(path.is_file() for path in found)


def test_a_script_has_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert libraries([tmp_path / "script"]) == []


def test_the_agents_modules_are_all_that_its_start_needs(tmp_path: Path) -> None:
    """Python starts the agent with nothing but those files; without one that it needs it would end otherwise."""
    files = agent_modules()
    standard = Path(next(path for path in files if path.name == "os.py")).parent
    for path in files:
        target = tmp_path / path.relative_to(standard)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    script = f"import sys; sys.path[:] = [{str(tmp_path)!r}, {str(tmp_path / 'lib-dynload')!r}]; sys.argv = ['a', 'x'];"
    script += f" import runpy; runpy.run_path({str(image.AGENT)!r}, run_name='agent'); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kvm_that_must_be_and_is_not_is_said_before_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "kvm_boots", lambda *_: False)
    nothing = BootImage(Path("/k"), Path("/i"))
    with pytest.raises(PreparationError, match="no guest comes up under KVM"):
        pool.choose_accelerator(GuestSettings(accelerator="kvm"), nothing)
    assert pool.choose_accelerator(GuestSettings(), nothing) == "tcg"
    monkeypatch.setattr(pool, "kvm_boots", lambda *_: True)
    assert pool.choose_accelerator(GuestSettings(), nothing) == "kvm"
    assert pool.choose_accelerator(GuestSettings(accelerator="tcg"), nothing) == "tcg"


def test_vhost_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pool, "_VHOST", tmp_path / "vhost-net")
    assert not pool.choose_vhost(GuestSettings())
    with pytest.raises(PreparationError, match="modprobe vhost_net"):
        pool.choose_vhost(GuestSettings(vhost="on"))
    (tmp_path / "vhost-net").touch()
    assert pool.choose_vhost(GuestSettings())
    assert not pool.choose_vhost(GuestSettings(vhost="off"))
