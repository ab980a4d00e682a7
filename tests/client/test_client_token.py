"""The token: where it comes from, where it goes, and that nothing shows it."""

from __future__ import annotations

import traceback
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from cotenant_client import AsyncClient, Client, CotenantError, Unauthorised
from tests.client.stand_in import Reply, StandIn, by

TOKEN = "cot_a1b2_secret"


ready = methodcaller("ready")


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def sent(stand_in: StandIn) -> list[str | None]:
    return [one.headers.get("Authorization") for one in stand_in.seen]


def test_it_comes_from_the_argument_a_file_or_the_environment(
    stand_in: StandIn, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by(kind, stand_in.url, ready)
    by(kind, stand_in.url, ready, token="given")
    monkeypatch.setenv("COTENANT_TOKEN", "of-the-environment")
    by(kind, stand_in.url, ready)
    by(kind, stand_in.url, ready, token="given")
    by(kind, stand_in.url, ready, token_file=written(tmp_path / "t", "of-the-file\n"))
    assert sent(stand_in) == [
        None, "Bearer given", "Bearer of-the-environment", "Bearer given", "Bearer of-the-file",
    ]  # fmt: skip


def test_a_file_that_is_renewed_is_read_again(stand_in: StandIn, tmp_path: Path) -> None:
    path = written(tmp_path / "t", "old")
    with Client(stand_in.url, token_file=path) as client:
        client.ready()
        written(path, "new")
        client.ready()
        path.chmod(0o644)
        with pytest.raises(Unauthorised, match=r"cannot be asked: token file .* others may read it \(mode 644\)"):
            client.ready()
    assert sent(stand_in) == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o604, "others may read"), (0o660, "others may change"), (0o602, "others may change"), (0o640, None)],
)
def test_a_file_that_is_open_to_others_is_refused(
    stand_in: StandIn, kind: str, tmp_path: Path, mode: int, words: str | None
) -> None:
    path = written(tmp_path / "t", TOKEN, mode)
    if words is None:
        by(kind, stand_in.url, ready, token_file=path)
        assert sent(stand_in) == [f"Bearer {TOKEN}"]
        return
    with pytest.raises(ValueError, match=words) as refused:
        by(kind, stand_in.url, ready, token_file=path)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token": "two words"}, "the token is empty or holds blanks"),
        ({"token": ""}, "the token is empty"),
        ({"token": "a\nb"}, "line ends"),
        ({"token": "a", "token_file": "b"}, "not both"),
        ({"token_file": "missing"}, "token file missing cannot be read: No such file"),
    ],
)
def test_what_is_no_token_is_one_sentence(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        by(kind, "http://127.0.0.1:1", ready, **options)


@pytest.mark.parametrize("url", ["http://cotenant.example", "http://192.0.2.7:8080", "http://[2001:db8::1]"])
def test_it_does_not_go_over_plain_http_to_another_machine(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = {"sync": Client, "async": AsyncClient}[kind]
    with pytest.raises(ValueError, match="the token is not sent to") as refused:
        client(url, token=TOKEN)
    assert TOKEN not in str(refused.value)
    client(url)
    monkeypatch.setenv("COTENANT_TOKEN_OVER_HTTP", "1")
    client(url, token=TOKEN)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:80", "https://c.example"])
def test_it_goes_to_this_machine_and_over_tls(kind: str, url: str) -> None:
    client = {"sync": Client, "async": AsyncClient}[kind](url, token=TOKEN)
    assert repr(client) == f"{type(client).__name__}({url!r})"


@pytest.mark.parametrize("reply", [Reply(401, b'{"detail": "no"}'), Reply(200, b"<html>"), Reply(how="nothing")])
def test_no_error_shows_it(stand_in: StandIn, kind: str, reply: Reply) -> None:
    stand_in.replies = [reply]
    with pytest.raises(CotenantError) as failed:
        by(kind, stand_in.url, ready, token=TOKEN, tries=1)
    assert sent(stand_in) == [f"Bearer {TOKEN}"]
    frames = traceback.TracebackException.from_exception(failed.value, capture_locals=True)
    own = [one for one in frames.stack if "cotenant_client" in one.filename]
    assert own
    assert TOKEN not in "".join(frames.format_exception_only()) + repr([one.locals for one in own])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://x", "is no URL such as"),
        ("x", "is no URL such as"),
        ("http://", "is no URL"),
        ("http://x:y", "is no URL"),
        ("http://x y", "is no URL"),
        ("http://user:word@x", "holds a user or password"),
        ("http://x/?a=b", "has a query or fragment"),
    ],
)
def test_what_is_no_base_url_is_one_sentence(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Client(url)


def test_nothing_of_the_environment_leads_elsewhere(
    stand_in: StandIn, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / ".netrc", "machine 127.0.0.1 login operator password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    by(kind, stand_in.url, ready)
    assert sent(stand_in) == [None]
