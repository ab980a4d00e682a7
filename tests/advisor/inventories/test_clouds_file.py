"""clouds.yaml: its secrets are for its owner and group, and no other file says which CA to trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from cotenant_openstack.source import OpenStack

from advisor.access.keystone import Keystone
from advisor.errors import IdentityUnavailable
from advisor.inventories.calls import read_settings

PLAIN = "clouds:\n  lab:\n    auth:\n      auth_url: http://127.0.0.1:1/v3\n      username: u\n"
SECRET = PLAIN + "      password: geheim\n"
BRACED = '{"clouds": {"lab": {"auth": {"auth_url": "http://x", "application_credential_secret": "geheim"}}}}'


def clouds(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int) -> Path:
    file = folder / "clouds.yaml"
    file.write_text(text)
    file.chmod(mode)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    monkeypatch.setenv("OS_CLOUD", "lab")
    return file


@pytest.mark.parametrize(("text", "mode"), [(PLAIN, 0o644), (SECRET, 0o640), (SECRET, 0o600), (BRACED, 0o600)])
def test_a_file_that_tells_no_secret_to_others_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int
) -> None:
    file = clouds(tmp_path, monkeypatch, text, mode)
    assert read_settings().config_filename == str(file)


@pytest.mark.parametrize(
    ("text", "mode", "what"),
    [(SECRET, 0o644, "read"), (BRACED, 0o644, "read"), (SECRET, 0o660, "change"), (PLAIN, 0o666, "change")],
)
def test_a_file_that_is_open_is_refused_by_all_that_ask_an_openstack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int, what: str
) -> None:
    file = clouds(tmp_path, monkeypatch, text, mode)
    said = f"{file} is refused because others may {what} it (mode {mode:o}); chmod 640 it"
    with pytest.raises(ValueError, match="is refused") as reported:
        read_settings()
    assert str(reported.value) == said
    reading = OpenStack("lab").read()
    assert f"is refused because others may {what} it" in reading.parts[0].reason
    with pytest.raises(IdentityUnavailable) as unavailable:
        Keystone("http://127.0.0.1:1", "admin=admin").ask("x" * 20)
    assert said in str(unavailable.value)


def test_so_is_a_file_of_secrets_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds(tmp_path, monkeypatch, PLAIN, 0o644)
    beside = tmp_path / "secure.yaml"
    beside.write_text("clouds:\n  lab:\n    auth:\n      password: geheim\n")
    beside.chmod(0o644)
    monkeypatch.setenv("OS_CLIENT_SECURE_FILE", str(beside))
    with pytest.raises(ValueError, match=r"secure\.yaml is refused because others may read it"):
        read_settings()
