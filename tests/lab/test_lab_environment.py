"""What is remembered about the host: circumstances before and after, qdiscs, versions; unknown is never made up."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import program_versions, qdiscs
from lab.campaign import Campaign
from lab.environment import circumstances, remembered
from lab.errors import ToolError
from lab.journal import Journal
from lab.qdiscs import compare, host_qdiscs, lab_qdiscs
from lab.resource_registry import ResourceRegistry

SHOWN = """\
qdisc htb 1: dev uplink root refcnt 9 r2q 10 default 0 direct_packets_stat 12 direct_qlen 1000
 Sent 1000 bytes 10 pkt (dropped 3, overlimits 7 requeues 0)
 backlog 0b 0p requeues 0
qdisc pfifo 8420: dev uplink parent 1:2 limit 1000p
 Sent 0 bytes 0 pkt (dropped 2, overlimits 0 requeues 0)
"""
CLASSES = "class htb 1:10 parent 1: prio 0 rate 100Mbit ceil 100Mbit burst 16000b cburst 16000b\n"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ResourceRegistry]:
    registry = ResourceRegistry(tmp_path / "state")
    yield registry
    registry.close()


def _read(monkeypatch: pytest.MonkeyPatch, registry: ResourceRegistry, shown: str) -> qdiscs.Qdiscs:
    monkeypatch.setattr(qdiscs, "call", lambda command: CLASSES if "class" in command else shown)
    read = lab_qdiscs(registry)
    assert read is not None
    return read


def test_the_digest_follows_settings_and_not_counts(
    monkeypatch: pytest.MonkeyPatch, registry: ResourceRegistry
) -> None:
    counts = SHOWN.replace("packets_stat 12", "packets_stat 99").replace("dropped 3", "dropped 30")
    first, later, other = (
        _read(monkeypatch, registry, shown)
        for shown in (SHOWN, counts.replace("8420:", "8421:"), SHOWN.replace("default 0", "default 0x20"))
    )
    assert (first.dropped, later.dropped) == (5, 32)
    assert first.digest == later.digest != other.digest
    assert "rate 100Mbit" in first.text


def test_without_tc_or_a_switch_qdiscs_are_unknown(monkeypatch: pytest.MonkeyPatch, registry: ResourceRegistry) -> None:
    def refuse(_command: list[str]) -> str:
        raise ToolError("tc cannot be started")

    monkeypatch.setattr(qdiscs, "call", refuse)
    assert lab_qdiscs(registry) is None
    assert host_qdiscs() is None
    assert compare(None, ["a"]).startswith("unknown")


def test_a_changed_host_is_listed_line_by_line() -> None:
    assert compare(["a", "b"], ["a", "b"]) == "the same"
    assert compare(["a", "b"], ["b", "c"]) == "gone: a; new: c"


@pytest.mark.lab
def test_the_hosts_qdiscs_are_those_that_tc_shows() -> None:
    shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    listed = host_qdiscs()
    assert listed is not None
    assert any(" dev lo " in line for line in listed)
    assert set(listed) == {line.strip() for line in shown.splitlines()}


@pytest.mark.lab
def test_versions_come_from_the_package_system_or_the_programs() -> None:
    versions = program_versions.versions(["sysbench", "ip", "surely-no-such-tool"])
    assert set(versions) == {"sysbench", "ip"}
    assert all(version[0].isdigit() for version in versions.values())


@pytest.mark.lab
def test_without_a_package_system_programs_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert program_versions.versions(["sysbench"])["sysbench"].startswith("1.")


def test_only_what_could_be_read_is_sent() -> None:
    read = circumstances()
    assert {"kernel", "load", "hypervisor", "affinity"} <= set(read)
    assert all(read.values())


def test_before_and_after_stand_side_by_side_and_changes_are_named(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    journal.note("before", {"at": "1", "governor": "performance", "load": "0.1", "host_qdiscs": ["a"]})
    assert remembered(journal)["host_qdiscs_after"].startswith("unknown")
    journal.note("after", {"at": "2", "governor": "powersave", "load": "0.9", "host_qdiscs": ["a"]})
    whole = remembered(journal)
    assert (whole["governor"], whole["load_before"], whole["load_after"]) == ("performance", "0.1", "0.9")
    assert whole["changed_during_the_campaign"] == {"governor": "powersave"}
    assert whole["host_qdiscs_after"] == "the same"
    assert whole["times_begun"] == 1


def test_a_resumed_campaign_is_reported_as_such(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    for at, qdisc in (("1", "a"), ("2", "b")):
        journal.note("before", {"at": at, "load": "0.1", "host_qdiscs": ["a"]})
        journal.note("after", {"at": at, "load": "0.2", "host_qdiscs": [qdisc]})
    whole = remembered(journal)
    assert whole["times_begun"] == 2
    assert whole["host_qdiscs_after"] == "gone: a; new: b"


def test_what_was_not_looked_at_again_has_no_value_after(tmp_path: Path, campaign: Campaign) -> None:
    journal = Journal(tmp_path, campaign)
    journal.note("before", {"at": "1", "load": "0.1", "steal_s": "5.00", "host_qdiscs": ["a"]})
    whole = remembered(journal)
    assert (whole["load_before"], whole["steal_s_before"]) == ("0.1", "5.00")
    assert not {"load_after", "steal_s_after"} & set(whole)
