"""Tokens and the audit log: what is stored discloses no secret, and what is revoked or too old is gone."""

from __future__ import annotations

import hashlib
import hmac
import threading
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from advisor.access.audit import PURGE_EVERY, Audit, Operation, acting
from advisor.access.tokens import CACHE_S, Tokens
from advisor.errors import InvalidInput, NotFound, StorageUnavailable
from advisor.store import callers, schema
from advisor.store.engine import Database

START = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)


class Bench:
    """Tokens of one process on a database, with clocks that are set by hand."""

    def __init__(self, database: Database, *, keep: timedelta = 30 * DAY) -> None:
        self.database = database
        self.now, self.tick, self.reads = START, 0.0, 0
        self.audit = Audit(lambda: self.now, keep)
        self.tokens = Tokens(self.read, database.write, lambda: self.now, self.audit, monotonic=lambda: self.tick)

    def read(self) -> AbstractContextManager[sa.Connection]:
        self.reads += 1
        return self.database.read()

    def actor(self, text: str) -> str | None:
        self.tokens.refresh()
        caller = self.tokens.caller(text)
        return caller.actor if caller else None

    def entries(self, **asked: Any) -> list[tuple[str, str, tuple[str, ...]]]:
        options = {"actor": None, "named": None, "cursor": None, "limit": 100, **asked}
        with self.database.read() as connection:
            page = self.audit.page(connection, **options)
        return [(one.actor, one.operation, one.objects) for one in page.items]


@pytest.fixture
def bench(database: Database) -> Bench:
    return Bench(database)


def test_a_token_is_distinguished_from_forgeries_of_it(bench: Bench) -> None:
    token, text = bench.tokens.create("agents", "write", lasts=None)
    other, _ = bench.tokens.create("other", "admin", lasts=None)
    assert bench.actor(text) == f"token:{token.id}"
    assert (caller := bench.tokens.caller(text)) is not None
    assert caller.scope == "write"
    secret = text.rpartition(f"{token.id}_")[2]
    wrong = "A" if secret[0] != "A" else "B"
    for forged in (
        f"cot_{token.id}_{wrong}{secret[1:]}", f"cot_{other.id}_{secret}", f"cot_{'0' * 16}_{secret}", text[:-1],
        text + "A", text.upper(), f" {text}", secret, token.id, "", "\udcff",
    ):  # fmt: skip
        assert bench.actor(forged) is None, forged


def test_an_unknown_id_costs_the_same_work_as_a_wrong_secret(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = bench.tokens.create("agents", "read", lasts=None)
    bench.tokens.refresh()
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for asked in (f"cot_{token.id}_{'A' * 43}", f"cot_{'0' * 16}_{'A' * 43}", "nonsense"):
        assert bench.tokens.caller(asked) is None
    assert compared == [(64, 64)] * 3


def test_what_is_stored_admits_no_caller(bench: Bench) -> None:
    _, text = bench.tokens.create("agents", "read", lasts=None)
    secret = text[len("cot_") + 17 :]  # by its place: a secret may itself have "_"
    with bench.database.read() as connection:
        kept = "".join(
            str(tuple(row)) for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))
        )
    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert digest in kept
    assert secret not in kept
    assert bench.actor(f"cot_{text[4:20]}_{digest[:43]}") is None


def test_a_token_ends_when_it_expires(bench: Bench) -> None:
    token, text = bench.tokens.create("agents", "read", lasts=DAY)
    assert token.expires_at == START + DAY
    bench.now = START + DAY - timedelta(seconds=1)
    assert bench.actor(text)
    bench.now = START + DAY
    assert bench.actor(text) is None


def test_an_expired_token_stays_so_where_the_clock_steps_back_here_and_after_a_restart(bench: Bench) -> None:
    _, text = bench.tokens.create("job", "read", lasts=DAY)
    _, other = bench.tokens.create("other", "read", lasts=3 * DAY)
    assert bench.actor(text)
    bench.now += 2 * DAY
    bench.tick += CACHE_S
    assert bench.actor(text) is None
    bench.now -= 2 * DAY
    assert bench.actor(text) is None
    restarted = Bench(bench.database)
    assert restarted.actor(text) is None
    assert restarted.actor(other)
    assert bench.entries()[0][1] == "token.create"


def test_a_token_is_known_and_ends_when_it_is_revoked_at_once_here_and_within_a_second_elsewhere(bench: Bench) -> None:
    elsewhere = Bench(bench.database)
    elsewhere.tokens.refresh()
    assert not elsewhere.tokens.required
    token, text = bench.tokens.create("agents", "read", lasts=None)
    assert bench.actor(text)
    elsewhere.tick += CACHE_S
    assert elsewhere.actor(text)
    assert elsewhere.tokens.required
    first = bench.tokens.revoke(token.id)
    assert bench.actor(text) is None
    elsewhere.tick += CACHE_S
    assert elsewhere.actor(text) is None
    bench.now += DAY
    assert bench.tokens.revoke(token.id) == first, "the first time counts"
    assert CACHE_S <= 1


def test_a_token_that_is_revoked_while_tokens_are_read_ends_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, text = bench.tokens.create("agents", "read", lasts=None)
    begun, revoked = threading.Event(), threading.Event()

    def slowly(connection: sa.Connection) -> object:
        found = load_all(connection)
        begun.set()
        revoked.wait(0.5)  # the revocation waits for who reads, or is over by then
        return found

    load_all = callers.load_all
    monkeypatch.setattr(callers, "load_all", slowly)
    reading = threading.Thread(target=bench.tokens.refresh)
    reading.start()
    assert begun.wait(30)
    monkeypatch.setattr(callers, "load_all", load_all)
    bench.tokens.revoke(token.id)
    revoked.set()
    reading.join()
    assert bench.actor(text) is None


def test_forged_tokens_ask_the_database_nothing(bench: Bench) -> None:
    bench.tokens.create("agents", "read", lasts=None)
    for number in range(1000):
        assert bench.actor(f"cot_{number:016x}_{'A' * 43}") is None
    assert bench.reads == 1


def test_neither_what_was_not_looked_up_yet_nor_the_last_token_that_ends_opens_anything(bench: Bench) -> None:
    assert bench.tokens.required
    assert bench.tokens.caller("cot_" + "0" * 16 + "_" + "A" * 43) is None
    token, _ = bench.tokens.create("agents", "read", lasts=DAY)
    bench.now += 2 * DAY
    bench.tokens.revoke(token.id)
    bench.tokens.refresh()
    assert bench.tokens.required


def test_no_caller_is_admitted_by_what_was_read_before_the_database_failed(bench: Bench) -> None:
    _, text = bench.tokens.create("agents", "read", lasts=None)
    assert bench.actor(text)

    def gone() -> Any:
        raise StorageUnavailable("gone")

    bench.tokens._read = gone
    bench.tick += CACHE_S
    with pytest.raises(StorageUnavailable):
        bench.actor(text)


@pytest.mark.parametrize(
    ("name", "scope", "lasts", "field"),
    [
        ("", "read", None, "name"),
        ("a\nb", "read", None, "name"),
        ("a" * 256, "read", None, "name"),
        ("a", "root", None, "scope"),
        ("a", "read", timedelta(0), "expires"),
        ("a", "read", 3651 * DAY, "expires"),
    ],
)
def test_what_makes_no_token_is_refused_and_leaves_none(
    bench: Bench, name: str, scope: Any, lasts: timedelta | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        bench.tokens.create(name, scope, lasts=lasts)
    assert caught.value.field == field
    assert bench.tokens.listing() == ()


def test_a_token_that_was_made_elsewhere_is_accepted_as_often_as_one_likes(bench: Bench) -> None:
    text = f"cot_{'0123456789abcdef'}_{'x' * 43}"
    first, again = (bench.tokens.accept(text, "kube-scheduler", "write") for _ in range(2))
    assert first == again
    assert bench.actor(text) == f"token:{first.id}"
    assert len(bench.tokens.listing()) == 1
    for wrong in (f"cot_{first.id}_{'y' * 43}", "cot_1_2", "", f"{text}\n"):
        with pytest.raises(InvalidInput):
            bench.tokens.accept(wrong, "kube-scheduler", "write")
    bench.tokens.revoke(first.id)
    with pytest.raises(InvalidInput, match="was revoked"):
        bench.tokens.accept(text, "kube-scheduler", "write")


def test_what_is_done_is_logged_with_who_did_it_newest_first(bench: Bench) -> None:
    token, _ = bench.tokens.create("agents", "read", lasts=None)
    bench.now += DAY
    with acting("token:other", "request-1"):
        bench.tokens.revoke(token.id)
    bench.now += DAY
    with bench.database.write() as connection:
        bench.audit.record(connection, "host.put", ["h1", "h2", "h1"])
    assert bench.entries() == [
        ("local", "host.put", ("h1", "h2", "h1")),
        ("token:other", "token.revoke", (token.id,)),
        ("local", "token.create", (token.id,)),
    ]
    assert bench.entries(actor="token:other") == [("token:other", "token.revoke", (token.id,))]
    assert bench.entries(named="h2") == [("local", "host.put", ("h1", "h2", "h1"))]
    assert bench.entries(named="h") == []
    assert bench.entries(named=token.id, actor="local", limit=1) == [("local", "token.create", (token.id,))]


def test_a_change_that_fails_and_a_token_that_does_not_exist_leave_no_entry(bench: Bench) -> None:
    with pytest.raises(RuntimeError), bench.database.write() as connection:
        bench.audit.record(connection, "host.put", ["h1"])
        raise RuntimeError
    with pytest.raises(NotFound):
        bench.tokens.revoke("0" * 16)
    assert bench.entries() == []


def test_entries_that_are_too_old_go_with_all_that_points_at_them(database: Database) -> None:
    bench = Bench(database, keep=10 * DAY)
    with database.write() as connection:
        for _ in range(3 * PURGE_EVERY):
            bench.audit.record(connection, "host.put", ["old"])
    bench.now += 10 * DAY - timedelta(seconds=1)
    young = Audit(lambda: bench.now, 10 * DAY)
    with database.write() as connection:
        young.record(connection, "host.put", ["new"])  # the first of a process looks for old ones
    assert len(bench.entries(named="old", limit=1000)) == 1000
    bench.now += timedelta(seconds=2)
    with database.write() as connection:
        for _ in range(PURGE_EVERY + 1):
            bench.audit.record(connection, "host.put", ["new"])
    assert bench.entries(named="old") == []
    assert len(bench.entries(named="new", limit=1000)) == PURGE_EVERY + 2


@pytest.mark.parametrize("operation", get_args(Operation))
def test_every_operation_of_the_log_is_documented(operation: str) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "access.md"
    assert f"`{operation}`" in page.read_text(encoding="utf-8")
