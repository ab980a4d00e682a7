"""Without a token, only this machine is listened to and answered."""

from __future__ import annotations

import socket

import pytest

from advisor.errors import InvalidInput
from api.auth import bind, is_loopback, parse_listen, require_loopback


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_these_names_mean_this_machine(name: str) -> None:
    assert is_loopback(name)
    require_loopback(name)


@pytest.mark.parametrize(
    "name",
    ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", "127.0.0.1.example.org", "", "2130706433"],
)
def test_these_names_may_mean_another_one(name: str) -> None:
    assert not is_loopback(name)
    with pytest.raises(InvalidInput, match=r"refusing to listen on .* no token is configured"):
        require_loopback(name)


@pytest.mark.parametrize(
    ("listen", "parsed"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_split(listen: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(listen) == parsed


@pytest.mark.parametrize(
    "listen", ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:8080", "a b:1"]
)
def test_what_is_no_address_is_refused_with_an_example(listen: str) -> None:
    with pytest.raises(InvalidInput, match=r"such as 127\.0\.0\.1:8080"):
        parse_listen(listen)


def test_a_port_that_is_taken_is_an_error_and_leaves_no_socket_behind() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_answers_will_not_wait_for_more_to_send() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_ipv6_loopback_can_be_bound() -> None:
    with bind("::1", 0) as listener:
        assert listener.family == socket.AF_INET6
