"""A file is there whole or not at all, and nothing else is written on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler import files


def test_a_link_at_the_temporary_name_leads_nowhere(tmp_path: Path) -> None:
    """In a folder that others may write, such a link would let the writer, often root, replace any file."""
    other = tmp_path / "passwd"
    other.write_bytes(b"root")
    (tmp_path / f"orders.json{files.TEMPORARY}").symlink_to(other)
    files.write_whole(tmp_path / "orders.json", b"{}")
    assert (other.read_bytes(), (tmp_path / "orders.json").read_bytes()) == (b"root", b"{}")
    assert not (tmp_path / "orders.json").is_symlink()


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"orders.json{files.TEMPORARY}").write_bytes(b"half of something longer")
    files.write_whole(tmp_path / "orders.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["orders.json"]
    assert (tmp_path / "orders.json").read_bytes() == b"{}"


def test_what_cannot_be_finished_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_whole(tmp_path / "orders.json", b"former")

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(tmp_path / "orders.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("orders.json", b"former")]
