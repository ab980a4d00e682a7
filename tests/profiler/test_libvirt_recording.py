"""A recording of two real guests, replayed: its rates are what was going on, and no damage to it is a crash."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.backends import BackendError, RecordedBackend
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.sources import RecordedReading, RecordedSource
from profiler.collectors import Collected, collect
from profiler.metrics import EIGHT
from tests.examples import examples
from tests.profiler.recorded import RECORDINGS, recorded_readings

RECORDING = RECORDINGS / "libvirt-tcg.json"


@pytest.fixture
def collected() -> Collected:
    backend = RecordedBackend(RECORDING)
    return collect(backend.read_counters(), backend.read_counters())


def _value(collected: Collected, metric: str, instance: str | None, scope: str = "instance") -> float:
    wanted = (metric, instance, scope)
    return next(
        sample.value for sample in collected.samples if (sample.metric, sample.instance, sample.scope) == wanted
    )


def test_every_metric_is_there_in_every_scope_that_it_has(collected: Collected) -> None:
    found = {(sample.metric, sample.scope) for sample in collected.samples}
    assert {(metric.name, scope) for metric in EIGHT for scope in metric.scopes} <= found
    assert collected.absences == collected.drops == ()


def test_the_guest_that_serves_exchanges_pages_and_the_capped_one_keeps_to_its_cap(collected: Collected) -> None:
    assert _value(collected, "pages_exchanged", "shop") > _value(collected, "pages_exchanged", "batch") > 0
    assert _value(collected, "net_mbit", "shop") > 5
    assert 10 < _value(collected, "cpu", "batch") < 65
    assert _value(collected, "disk_mb_s", "batch") > 0.5
    assert _value(collected, "cpu", "shop", "driver_domain") > _value(collected, "cpu", "batch", "driver_domain")


def test_settings_are_those_that_were_made() -> None:
    backend = RecordedBackend(RECORDING)
    batch, shop = (backend.read_isolation(instance) for instance in backend.list_instances())
    assert (batch.cap_percent, batch.weight, batch.disk_limit_mb_s, batch.pinning) == (60.0, 128, 8.0, None)
    assert (str(shop.pinning), shop.cap_percent, shop.weight) == ("0:0", None, 256)


READINGS = recorded_readings(RECORDING.name)
PLACES = [
    (number, kind, key)
    for number, reading in enumerate(READINGS[:2])
    for kind in ("files", "directories", "values")
    for key in getattr(reading, kind)
]
DAMAGE = [errno.ENOENT, errno.EACCES, errno.EIO, errno.ESRCH]


def _with(reading: RecordedReading, kind: str, key: str, value: object) -> RecordedReading:
    """The reading with another answer in one place."""
    answers: Any = {**getattr(reading, kind), key: value}
    return replace(reading, **{kind: answers})


def _replay(readings: list[RecordedReading]) -> None:
    """Everything that a program does with a backend; BackendError is an answer."""
    source = RecordedSource(readings)
    try:
        backend = LibvirtBackend(source, "h", LibvirtConnection("test:///"))
        first = backend.read_counters()
        source.advance()
        second = backend.read_counters()
        for instance in backend.list_instances():
            backend.read_isolation(instance)
        backend.close()
    except BackendError as error:
        assert str(error)
        return
    collected = collect(first, second)
    for name in second.instances:
        known = {sample.metric for sample in collected.samples if sample.instance == name}
        said = {absence.metric for absence in collected.absences if absence.instance == name}
        dropped = {drop.instance for drop in collected.drops}
        assert name in dropped or {"cpu", "waiting", "block", "execution", "pages_exchanged"} <= known | said


@pytest.mark.parametrize("damage", [*DAMAGE, "garbled"])
def test_whatever_single_thing_is_missing_or_garbled_the_rest_is_read(damage: int | str) -> None:
    for number, kind, key in PLACES:
        garbled = {"files": "\x00?", "directories": ["x"], "values": [{}]}
        readings = list(READINGS)
        readings[number] = _with(readings[number], kind, key, damage if isinstance(damage, int) else garbled[kind])
        _replay(readings)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(DAMAGE) | st.text(max_size=30)), max_size=12))
def test_much_damage_at_once_is_no_crash(damages: list[tuple[tuple[int, str, str], int | str]]) -> None:
    readings = list(READINGS)
    for (number, kind, key), damage in damages:
        value = {"directories": [damage], "values": [damage]}.get(kind, damage) if isinstance(damage, str) else damage
        readings[number] = _with(readings[number], kind, key, value)
    _replay(readings)
