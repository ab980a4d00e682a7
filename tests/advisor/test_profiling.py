"""Profiles from the database and from files: what is read, what is refused, and what becomes a workload."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import offline
from advisor.domain import Host, Instance, InstanceProfile, IsolationSettings
from advisor.errors import AdvisorError, InvalidInput, NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry import profiles
from advisor.telemetry.profiles import read_samples
from profiler.observed import MetricSample, NetworkSettings
from tests.examples import examples
from tests.servers.fixtures import sqlite_with_tables

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
PERIOD_S = 10.0


@pytest.fixture
def advisor(tmp_path: Path) -> Iterator[Advisor]:
    settings_here = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)
    with Advisor(settings_here, clock=lambda: NOW) as opened:
        opened.inventory.put_host(Host("h1", "xen", 4, 8192, platform="p1", nic_mbit=1000))
        opened.inventory.put_instance(Instance("i1", host="h1"))
        opened.inventory.put_instance(Instance("i2", host="h1"))
        yield opened


def measured(cpu: list[float], instance: str = "i1", *, end: datetime = NOW, **more: float) -> list[MetricSample]:
    """Windows up to `end` with these CPU values, made up; waiting 0, one vCPU."""
    begin_s = end.timestamp() - PERIOD_S * (len(cpu) - 1)
    return [
        MetricSample("h1", instance, "instance", name, value, begin_s + PERIOD_S * number)
        for number, one in enumerate(cpu)
        for name, value in {"cpu": one, "waiting": 0.0, "block": 100 - one, "cpu_p95": one, **more}.items()
    ]


def two_phases() -> list[MetricSample]:
    wobble = [0.0, 0.4, -0.3, 0.2, -0.4, 0.1]
    part = [40 + wobble[number % 6] for number in range(30)]
    return measured([*part, *(98.5 + wobble[number % 6] for number in range(30))])


# from the database


def test_a_stored_instance_is_profiled(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    found = advisor.telemetry.profile("i1")
    assert [phase.windows for phase in found.phases] == [30, 30]
    assert [phase.load.method for phase in found.phases] == ["relative", "saturated"]
    assert all(phase.enough for phase in found.phases)
    assert "cpu_p95" not in found.phases[0].metrics


def test_only_the_time_that_was_asked_for_counts(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    assert len(advisor.telemetry.profile("i1", since="5m").windows) == 30 + 1
    with pytest.raises(NotFound, match="no samples of instance i1 in the last 5s"):
        _later(advisor).telemetry.profile("i1", since="5s")


def _later(advisor: Advisor) -> Advisor:
    telemetry: Any = advisor.telemetry
    telemetry._clock = lambda: datetime.fromtimestamp(NOW.timestamp() + 60, UTC)
    return advisor


def test_neighbours_are_read_too(advisor: Advisor) -> None:
    advisor.telemetry.ingest(measured([40.0] * 30))
    advisor.telemetry.ingest(measured([90.0] * 30, "i2"))
    phase = advisor.telemetry.profile("i1").phases[0]
    assert not phase.solo
    assert list(phase.neighbours) == ["i2"]


def test_the_limits_of_the_inventory_count(advisor: Advisor) -> None:
    network = NetworkSettings("dedicated", rate_mbit=50)
    advisor.inventory.put_instance(Instance("i1", host="h1", settings=IsolationSettings(network=network)))
    advisor.telemetry.ingest(measured([30.0] * 30, net_mbit=49.0))
    assert advisor.telemetry.profile("i1").phases[0].load.text == "it asked for all of its net limit"
    advisor.inventory.put_instance(Instance("i1", host="h1", settings=IsolationSettings(cap_percent=30)))
    assert advisor.telemetry.profile("i1").phases[0].load.text == "it asked for all of its cpu limit"
    advisor.inventory.put_instance(Instance("i1", host="h1"))
    assert advisor.telemetry.profile("i1").phases[0].load.method == "busiest"


def test_an_instance_without_samples_and_one_that_is_not_there_are_distinguished(advisor: Advisor) -> None:
    with pytest.raises(NotFound, match="there are no samples of instance i1 in the last 24h; does its host push any"):
        advisor.telemetry.profile("i1")
    with pytest.raises(NotFound, match="there is no instance ghost"):
        advisor.telemetry.profile("ghost")


def test_an_instance_that_was_deleted_is_still_profiled(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    advisor.inventory.delete_instance("i1")
    assert len(advisor.telemetry.profile("i1").phases) == 2


def test_what_is_longer_ago_than_anything_is_kept_is_no_error() -> None:
    assert profiles.parse_since("3651d") == profiles.parse_since("999999d") == profiles.LONGEST_S
    assert profiles.parse_since("7d") == 7 * 86_400


@pytest.mark.parametrize("since", ["", "24", "h", "0h", "-1h", "1w", "1.5h", "9999999h", "24h ", "٣h"])
def test_a_time_that_is_none_is_refused(advisor: Advisor, since: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        advisor.telemetry.profile("i1", since=since)
    assert caught.value.field == "since"


def test_more_windows_than_are_looked_at_are_refused(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    advisor.telemetry.ingest(two_phases())
    monkeypatch.setattr(profiles, "MAX_WINDOWS", 50)
    with pytest.raises(InvalidInput, match="60 windows of i1, at most 50 are looked at; ask for less time"):
        advisor.telemetry.profile("i1")


# as a workload


def test_a_phase_becomes_a_workload_on_its_platform_and_nothing_else_changes(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    stored = advisor.telemetry.save_profile(advisor.telemetry.profile("i1"), "web", phase=2)
    assert advisor.inventory.workload("web") == stored
    assert (stored.platform, stored.origin) == ("p1", "measured")
    assert stored.metrics["cpu"] == pytest.approx(98.5, abs=0.1)
    assert advisor.inventory.instance("i1").workload is None


def test_part_load_is_saved_as_measured_and_scaled_only_when_asked(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    found = advisor.telemetry.profile("i1")
    assert advisor.telemetry.save_profile(found, "part", phase=1).metrics["cpu"] == pytest.approx(40, abs=0.2)
    scaled = advisor.telemetry.save_profile(found, "whole", phase=1, extrapolate=True)
    assert scaled.metrics["cpu"] == pytest.approx(98.5, abs=0.5)
    assert scaled.origin == "extrapolated"
    with pytest.raises(InvalidInput, match="phase 2 cannot be scaled to full load"):
        advisor.telemetry.save_profile(found, "whole", phase=2, extrapolate=True)


def test_the_phase_must_be_named_where_there_are_several(advisor: Advisor) -> None:
    advisor.telemetry.ingest(two_phases())
    found = advisor.telemetry.profile("i1")
    with pytest.raises(InvalidInput, match=r"2 phases in which it works \(1, 2\); choose with --phase"):
        advisor.telemetry.save_profile(found, "web", phase=None)
    with pytest.raises(InvalidInput, match="i1 has phases 1-2, not 3"):
        advisor.telemetry.save_profile(found, "web", phase=3)


def test_idling_is_not_meant_when_no_phase_is_named(advisor: Advisor) -> None:
    advisor.telemetry.ingest(measured([0.1] * 20 + [60.0] * 20))
    assert advisor.telemetry.save_profile(advisor.telemetry.profile("i1"), "web", phase=None).metrics[
        "cpu"
    ] == pytest.approx(60)


def test_what_is_not_enough_is_saved_only_against_its_reasons(advisor: Advisor) -> None:
    advisor.telemetry.ingest(measured([40.0] * 8))
    found = advisor.telemetry.profile("i1")
    with pytest.raises(InvalidInput, match="phase 1 is not enough for a workload: 8 windows"):
        advisor.telemetry.save_profile(found, "web", phase=1)
    with pytest.raises(NotFound):
        advisor.inventory.workload("web")
    assert advisor.telemetry.save_profile(found, "web", phase=1, anyway=True) == advisor.inventory.workload("web")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_a_workload_needs_a_name_that_can_be_stored(advisor: Advisor, name: str) -> None:
    advisor.telemetry.ingest(measured([40.0] * 40))
    with pytest.raises(InvalidInput):
        advisor.telemetry.save_profile(advisor.telemetry.profile("i1"), name, phase=1)


# from files


def as_json(sample: MetricSample, **more: Any) -> dict[str, Any]:
    time = datetime.fromtimestamp(sample.time_s, UTC).isoformat().replace("+00:00", "Z")
    entry = {"host": sample.host, "instance": sample.instance, "scope": sample.scope, "metric": sample.metric}
    return {**entry, "value": sample.value, "time": time, **more}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(as_json(one)) + "\n" for one in two_phases()), encoding="utf-8")
    return path


def test_a_file_gives_the_same_as_the_database(advisor: Advisor, whole: Path) -> None:
    advisor.telemetry.ingest(two_phases())
    assert offline.profile_samples([whole], "i1").phases[0].metrics == advisor.telemetry.profile("i1").phases[0].metrics


def test_batches_and_compressed_files_are_read_alike(whole: Path, tmp_path: Path) -> None:
    batches = tmp_path / "spool.json.gz"
    samples = [as_json(one) for one in two_phases()]
    with gzip.open(batches, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"samples": samples[:100]}) + "\n" + json.dumps({"samples": samples[100:]}))
    assert read_samples([batches]) == read_samples([whole]) == two_phases()


def test_windows_of_a_body_are_read_as_their_samples(tmp_path: Path) -> None:
    path, time = tmp_path / "windows.jsonl", "2026-01-02T12:00:00Z"
    rows = [{"instance": "i1", "values": [4, None], "others": {"waiting": 2}}, {"instance": None, "values": [9, 5]}]
    windows = [{"host": "h1", "time": time, "metrics": ["cpu", "ipc"], "rows": rows}]
    path.write_text(json.dumps({"windows": windows}) + "\n", encoding="utf-8")
    assert [(one.instance, one.scope, one.metric, one.value) for one in read_samples([path])] == [
        ("i1", "instance", "cpu", 4.0),
        ("i1", "instance", "waiting", 2.0),
        (None, "host", "cpu", 9.0),
        (None, "host", "ipc", 5.0),
    ]


def test_an_unfinished_last_line_is_skipped(whole: Path) -> None:
    with whole.open("a", encoding="utf-8") as file:
        file.write('{"host": "h1", "inst')
    assert read_samples([whole]) == two_phases()


GOOD: Mapping[str, Any] = {
    "host": "h1",
    "instance": "i1",
    "metric": "cpu",
    "value": 1.0,
    "time": "2026-01-02T12:00:00Z",
}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{nope\n", "it is not JSON"),
        ("[1]\n", "it is not a sample"),
        ("3\n", "it is not a sample"),
        ('{"samples": 3}\n', "samples is not a list"),
        ('{"windows": [3]}\n', "metrics is not a list"),
        ('{"windows": [{"metrics": ["cpu", "cpu"], "rows": []}]}\n', "a metric stands twice"),
        ('{"windows": [{"host": "h", "time": "", "metrics": ["cpu"], "rows": [{"values": []}]}]}\n', "shorter"),
        ({**GOOD, "value": "1"}, "value 1 is not a number"),
        ({**GOOD, "value": -1}, "value -1 is not a number"),
        ({**GOOD, "value": 1e300}, r"value 1e\+300 is not a number"),
        ({**GOOD, "value": True}, "value True is not a number"),
        ('{"host": "h1", "metric": "cpu", "value": NaN, "time_s": 1}\n', "value nan is not a number"),
        ({**GOOD, "host": "a b"}, "host 'a b' is not"),
        ({**GOOD, "instance": 3}, "'3' is not a text"),
        ({**GOOD, "metric": None}, "'None' is not a text"),
        ({**GOOD, "scope": "galaxy"}, "scope 'galaxy' is none of"),
        ({**GOOD, "time": "noon"}, "noon"),
        ({**GOOD, "time": "2026-01-02T12:00:00"}, "has no zone"),
        ({**GOOD, "time_s": 1e18}, r"time_s 1e\+18 is not a number"),
        ({"host": "h1", "metric": "cpu", "time_s": 1}, "value is missing"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, entry: Any, reason: str) -> None:
    path = tmp_path / "samples.jsonl"
    text = entry if isinstance(entry, str) else json.dumps(entry) + "\n"
    path.write_text(json.dumps(GOOD) + "\n\n" + text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"samples.jsonl, line 3: .*{reason}"):
        read_samples([path])


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, whole: Path) -> None:
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(whole.read_bytes())[:-20])
    garbage = tmp_path / "garbage.gz"
    garbage.write_bytes(b"\x1f\x8b\x08\x00" + bytes(range(200)))
    for path in (broken, garbage, tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be read"):
            read_samples([path])


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=80), st.integers(0, 400), st.integers(0, 40))
def test_a_mangled_file_is_read_or_refused_and_never_breaks(tmp_path: Path, put: bytes, at: int, cut: int) -> None:
    path = tmp_path / "mangled.jsonl"
    good = b"".join(json.dumps(as_json(one)).encode() + b"\n" for one in measured([40.0] * 8))
    path.write_bytes(good[:at] + put + good[at + cut :])
    try:
        samples = read_samples([path])
        profile = profiles.profile_samples(samples, "i1")
    except AdvisorError as error:
        assert error.message
        return
    assert isinstance(profile, InstanceProfile)


def test_an_instance_that_is_in_no_file_is_named_with_those_that_are(whole: Path) -> None:
    with pytest.raises(NotFound, match="there are no samples of instance i9; there are i1"):
        offline.profile_samples([whole], "i9")


# pictures


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("b.SVG", b"<?xml")])
def test_a_picture_is_drawn_and_the_same_again(whole: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    found = offline.profile_samples([whole], "i1")
    offline.write_profile_picture(found, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(magic)
    offline.write_profile_picture(found, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_a_picture_shows_every_phase_and_who_was_beside(tmp_path: Path) -> None:
    samples = [*two_phases(), *measured([90.0] * 10, "i2")]
    offline.write_profile_picture(profiles.profile_samples(samples, "i1"), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for words in ("i1 on h1", "phase 1: 50%, load 0.41", "phase 2: 50%, load 1.00", "beside others", "CPU, %"):
        assert words in text


def test_one_window_and_one_without_cpu_are_drawn(tmp_path: Path) -> None:
    for samples in (measured([40.0]), [MetricSample("h1", "i1", "instance", "rss_mb", 3.0, NOW.timestamp())]):
        offline.write_profile_picture(profiles.profile_samples(samples, "i1"), tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.gif", "a", "nowhere/a.png"])
def test_a_picture_that_cannot_be_written_is_refused(whole: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        offline.write_profile_picture(offline.profile_samples([whole], "i1"), tmp_path / name)
