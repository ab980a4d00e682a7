"""What goes into the store comes out the same, for every type that it keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import sqlalchemy as sa
from hypothesis import given, settings

from advisor.domain import codec
from advisor.store import answers, hosts, instances, models, samples
from advisor.store.engine import Database
from profiler.observed import Host, Pinning
from tests.advisor.store import store_strategies as make
from tests.examples import examples

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
few = settings(max_examples=examples(20), deadline=None)


@contextmanager
def scratch(database: Database) -> Iterator[sa.Connection]:
    """A transaction that leaves nothing behind for the next example."""
    with database.write() as connection:
        yield connection
        connection.rollback()


@few
@given(host=make.hosts, seen_at=make.times)
def test_a_host_comes_back_as_it_was_put(database: Database, host: Host, seen_at: datetime) -> None:
    with scratch(database) as connection:
        hosts.put(connection, [host], seen_at)
        assert hosts.get(connection, host.id) == host
        assert hosts.load_all(connection) == (host,)
        assert hosts.sightings(connection, seen_at) == {host.id: seen_at}


@few
@given(host=make.hosts, instance=make.instances)
def test_an_instance_comes_back_as_it_was_put(database: Database, host: Host, instance: Any) -> None:
    placed = replace(instance, host=host.id)
    with scratch(database) as connection:
        hosts.put(connection, [host], NOW)
        instances.put(connection, [placed])
        assert instances.get(connection, instance.id) == placed
        instances.put(connection, [instance])
        assert instances.load_all(connection) == (instance,)


@few
@given(profile=make.profiles)
def test_a_workload_comes_back_as_it_was_put(database: Database, profile: Any) -> None:
    with scratch(database) as connection:
        instances.put_workload(connection, [profile])
        assert instances.workloads_named(connection, profile.name) == (profile,)
        assert instances.load_workloads(connection) == (profile,)


@few
@given(sample=make.samples)
def test_a_sample_comes_back_as_it_was_added(database: Database, sample: Any) -> None:
    with scratch(database) as connection:
        assert samples.add(connection, [sample]) == 1
        assert samples.of_instance(connection, sample.instance) == (sample,)


@few
@given(colocation=make.colocations)
def test_a_colocation_comes_back_as_it_was_added(database: Database, colocation: Any) -> None:
    with scratch(database) as connection:
        assert models.add_colocation(connection, colocation, NOW)
        key = colocation.run, colocation.platform, colocation.repeat
        assert models.get_colocations(connection, *key) == colocation


@few
@given(recommendation=make.recommendations, outcome=make.outcomes)
def test_an_answer_and_its_outcome_come_back(database: Database, recommendation: Any, outcome: Any) -> None:
    with scratch(database) as connection:
        answers.add(connection, recommendation)
        assert answers.get(connection, recommendation.id) == recommendation
        assert answers.outcome(connection, recommendation.id) is None
        assert answers.set_outcome(connection, recommendation.id, outcome)
        assert answers.outcome(connection, recommendation.id) == outcome


@few
@given(recommendation=make.recommendations)
def test_a_body_that_is_packed_for_many_is_read_with_the_name_of_each(database: Database, recommendation: Any) -> None:
    nameless = replace(recommendation, notes=("stand-in-7f comes alone.",))
    body = answers.PackedBody.of(nameless, "stand-in-7f")
    name = recommendation.request.instance.id
    with scratch(database) as connection:
        answers.add(connection, nameless, body)
        found = answers.get(connection, recommendation.id)
        assert found == replace(nameless, notes=(f"{name} comes alone.",))


@few
@given(host=make.hosts, held=make.held)
def test_a_pending_answer_comes_back_as_it_was_held(database: Database, host: Host, held: Any) -> None:
    held = replace(held, placed=replace(held.placed, host=host.id))
    with scratch(database) as connection:
        hosts.put(connection, [host], NOW)
        instances.hold_pending(connection, [held])
        if held.expires_at > datetime(2, 1, 1, tzinfo=UTC):
            before = held.expires_at - timedelta(microseconds=1)
            assert instances.load_pending(connection, before, timedelta(0)) == (held,)
            assert instances.load_pending(connection, before, timedelta(0), [held]) == (held,)
        assert instances.load_pending(connection, held.expires_at, timedelta(0)) == ()


@few
@given(card=make.cards)
def test_a_model_comes_back_as_it_was_added(database: Database, card: Any) -> None:
    with scratch(database) as connection:
        assert models.add(connection, card)
        assert models.get(connection, card.version) == card


def test_a_time_of_another_zone_comes_back_as_the_same_moment(database: Database) -> None:
    there = NOW.astimezone(timezone(timedelta(hours=-7)))
    with database.write() as connection:
        hosts.put(connection, [Host("h1", "xen", 4, 1024)], there)
        seen_at = hosts.sightings(connection, NOW)["h1"]
    assert seen_at is not None
    assert seen_at == NOW
    assert seen_at.tzinfo is UTC


def test_decoding_gives_fields_that_the_data_lacks_their_defaults() -> None:
    assert codec.decode(Host, {"id": "h1", "kind": "kvm", "pcpus": 2, "memory_mb": 512}) == Host("h1", "kvm", 2, 512)


def test_numbers_that_json_has_not_are_written_as_text() -> None:
    stored = json.loads(codec.text((float("inf"), float("-inf"))))
    assert all(isinstance(one, str) for one in stored)
    assert codec.decode(tuple[float, ...], stored) == (float("inf"), float("-inf"))
    assert codec.decode(tuple[float, ...], ["inf", 1]) == (float("inf"), 1.0)  # as it was written once


def test_a_value_inside_a_value_is_decoded_by_its_type() -> None:
    assert codec.decode(Pinning, {"cpus": [[0, 1], []]}) == Pinning(((0, 1), ()))
