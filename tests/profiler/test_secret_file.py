"""Secrets in files: read only where no other user of the machine could have read or changed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.agent.http_client import parse_url
from profiler.agent.push import PushToken
from profiler.files import read_secret


def secret_of_mode(folder: Path, mode: int, text: str = "geheim\n") -> Path:
    file = folder / "secret"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640, 0o750])
def test_a_file_of_its_owner_that_a_group_may_read_is_read(tmp_path: Path, mode: int) -> None:
    assert read_secret(secret_of_mode(tmp_path, mode)) == "geheim\n"


@pytest.mark.parametrize(
    ("mode", "what"), [(0o666, "change"), (0o602, "change"), (0o620, "change"), (0o660, "change"), (0o644, "read")]
)
def test_a_file_that_others_may_read_or_write_is_refused_in_one_sentence(tmp_path: Path, mode: int, what: str) -> None:
    file = secret_of_mode(tmp_path, mode)
    with pytest.raises(ValueError) as reported:
        read_secret(file)
    assert str(reported.value) == f"{file} is refused because others may {what} it (mode {mode:o}); chmod 640 it"


def test_the_file_behind_a_link_counts(tmp_path: Path) -> None:
    file = secret_of_mode(tmp_path, 0o600)
    (tmp_path / "link").symlink_to(file)  # always of mode 777
    assert read_secret(tmp_path / "link") == "geheim\n"
    file.chmod(0o644)
    with pytest.raises(ValueError, match="link is refused because others may read it"):
        read_secret(tmp_path / "link")


def test_what_is_no_text_or_not_there_is_one_sentence_without_its_content(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/none cannot be read: No such file or directory\Z"):
        read_secret(tmp_path / "none")
    file = tmp_path / "bytes"
    file.touch(0o600)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"/bytes cannot be read: it is not text in UTF-8\Z"):
        read_secret(file)
    file.write_bytes(b"x" * 1_000_000)
    with pytest.raises(ValueError, match=r"/bytes cannot be read: it has more than 64 KiB\Z"):
        read_secret(file)


def test_the_agent_refuses_a_token_that_others_may_change_at_its_start_and_later(tmp_path: Path) -> None:
    server = parse_url("http://127.0.0.1:1")
    file = secret_of_mode(tmp_path, 0o666)
    with pytest.raises(ValueError, match=r"token file .*/secret is refused because others may change it"):
        PushToken(file, server)
    file.chmod(0o600)
    token = PushToken(file, server)
    assert token() == "geheim"
    file.chmod(0o604)
    with pytest.raises(ValueError, match="others may read it"):
        token()
