"""What the agent of a host changes by orders, and what no order, thief or file makes it change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.acting.allowed import Allowed, read_allowed
from profiler.acting.group_files import GroupFiles
from profiler.acting.orders import Memory, _signature, check_key, read_report, signed
from tests.profiler.acting_host import KEY, NOW, OTHER_KEY, ActingHost


@pytest.fixture
def host(tmp_path: Path) -> ActingHost:
    return ActingHost(tmp_path)


def test_an_order_is_carried_out_and_reported_with_what_was_there(host: ActingHost) -> None:
    report = host.send(host.order({"cpu.shares": "2048"}, expected={"cpu.shares": "1024"}))
    assert report is not None
    assert (report.state, report.before, report.after) == ("done", {"cpu.shares": "1024"}, {"cpu.shares": "2048"})
    read = host.send(host.order({"cpu.shares": ""}, action="read"))
    assert read is not None
    assert read.after == {"cpu.shares": "2048"}
    assert host.text("cpu.shares") == "2048"


def test_what_another_program_set_is_left_alone(host: ActingHost) -> None:
    report = host.send(host.order({"cpu.shares": "2048"}, expected={"cpu.shares": "512"}))
    assert report is not None
    assert (report.state, host.text("cpu.shares")) == ("refused", "1024")
    assert "'1024'" in report.why


@pytest.mark.parametrize("changed", ["key", "text", "signature", "host", "form", "purpose"])
def test_what_is_not_signed_for_this_host_changes_nothing_and_gets_no_report(host: ActingHost, changed: str) -> None:
    before = host.everything()
    order = host.order({"cpu.shares": "2048"})
    text, signature = signed(order, KEY)
    match changed:
        case "key":
            text, signature = signed(order, OTHER_KEY)
        case "text":
            text = text.replace('"2048"', '"1999"')
        case "signature":
            signature = "0" * 64
        case "host":
            text, signature = signed(replace(order, host="h2"), KEY)
        case "form":
            text, signature = signed(replace(order, action="run"), KEY)  # type: ignore[arg-type]
        case "purpose":  # a report of the same key, sent back as an order
            report = host.send(order)
            assert report is not None
            before = host.everything()
            text, signature = signed(report, KEY)
    assert host.send_text(text, signature) is None
    assert host.everything() == before


@pytest.mark.parametrize("text", ["\ud800", "{" * 10_000, "[]", "null", "", '{"id": 1e999}'])
@pytest.mark.parametrize("is_signed", [False, True])
def test_no_text_of_the_service_ends_the_agent(host: ActingHost, text: str, is_signed: bool) -> None:
    before = host.everything()
    signature = _signature("order", text, KEY) if is_signed else "x" * 64
    assert host.send_text(text, signature) is None
    report = host.send(host.order({"cpu.shares": "2048"}, instance="shop-\ud800", target="lxc/\ud800"))
    assert report is not None and report.state == "gone"
    assert host.everything() == before
    report = host.send(host.order({"cpu.shares": "2048"}))
    assert report is not None and report.state == "done"


@pytest.mark.parametrize("again", ["at once", "after a restart", "with the clock set back"])
def test_an_order_counts_once(host: ActingHost, again: str) -> None:
    order = host.order({"cpu.shares": "2048"})
    text, signature = signed(order, KEY)
    host.send_text(text, signature)
    (host.folder / "cpu/lxc/shop-1/cpu.shares").write_text("1024")
    if again != "at once":
        if again == "with the clock set back":
            host.now += 3600
            host.send(host.order({"cpu.shares": ""}, action="read"))
            host.now -= 3600
        host.begin()
    report = host.send_text(text, signature)
    assert host.text("cpu.shares") == "1024"
    assert report is not None
    assert report.state == ("done" if again == "at once" else "refused"), "the same report comes again, or a refusal"


def test_an_order_that_is_over_or_of_a_time_to_come_is_refused(host: ActingHost) -> None:
    for made_at in (NOW - 31, NOW + 301):
        order = host.order({"cpu.shares": "2048"}, made_at=made_at, expires_at=made_at + 30)
        report = host.send(order)
        assert report is not None
        assert report.state == "refused"
        assert "compare the clocks" in report.why
    assert host.text("cpu.shares") == "1024"


def test_orders_of_a_time_to_come_do_not_move_the_agents_time(host: ActingHost) -> None:
    for step in range(1, 6):
        host.send(host.order({"cpu.shares": ""}, action="read", made_at=NOW + 250 * step, expires_at=NOW + 290 * step))
    report = host.send(host.order({"cpu.shares": "2048"}, made_at=NOW + 250, expires_at=NOW + 280))
    assert report is not None
    assert report.state == "done"


@pytest.mark.parametrize(
    "settings",
    [
        {"cpu.shares": "128"},  # a weight of 32
        {"cpu.shares": "16384"},  # 4096
        {"cpu.shares": "2048\n1"},
        {"cpu.shares": "-1"},
        {"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "100000"},  # 20 %
        {"cpu.cfs_quota_us": "100000"},  # of which period?
        {"cpu.cfs_period_us": "1000000"},  # which makes the quota of another order small
        {"cpuset.cpus": "0-2"},
        {"cpuset.cpus": ""},
        {"cpuset.cpus": "x"},
        {"blkio.throttle.read_bps_device 8:0": "1"},  # a kind that is not allowed
        {"tasks": "1"},
        {"../sshd/cpu.shares": "2"},
        {"cgroup.procs": "1"},
        {"memory.limit_in_bytes": "1"},
    ],
    ids=str,
)
def test_who_has_the_key_changes_no_more_than_the_file_of_the_host_allows(
    host: ActingHost, settings: Mapping[str, str]
) -> None:
    before = host.everything()
    report = host.send(host.order(settings))
    assert report is not None
    assert report.state == "refused", report.why
    assert host.everything() == before


@pytest.mark.parametrize(
    ("instance", "target"),
    [
        ("bank-1", "lxc/bank-1"),  # not among the instances that may be changed
        ("shop-1", "system/sshd"),  # no instance at all
        ("shop-1", "lxc/bank-1"),
        ("shop-1", "lxc/../system/sshd"),
        ("shop-1", "/etc"),
        ("shop-9", "lxc/shop-1"),
        ("", "system/sshd"),
        ("shop-1\n", "lxc/shop-1"),
    ],
)
def test_who_has_the_key_changes_instances_that_are_allowed_and_nothing_else(
    host: ActingHost, instance: str, target: str
) -> None:
    before = host.everything()
    for action in ("set", "read"):
        report = host.send(host.order({"cpu.shares": "2048"}, instance=instance, target=target, action=action))
        assert report is not None
        assert report.state in ("refused", "gone")
        assert report.after == {}
    assert host.everything() == before


def test_changes_of_an_hour_are_bounded_and_the_way_back_is_not(host: ActingHost) -> None:
    host.allowed = replace(host.allowed, per_hour=3)
    texts = ["1025", "1026", "1027", "1028"]
    states = [report.state for text in texts if (report := host.send(host.order({"cpu.shares": text})))]
    assert states == ["done", "done", "done", "refused"]
    host.begin()
    refused, back = host.send(host.order({"cpu.shares": "1030"})), host.send(host.order({"cpu.shares": "1024"}))
    assert refused is not None and back is not None
    assert (refused.state, back.state, host.text("cpu.shares")) == ("refused", "done", "1024")
    host.now += 3601
    later = host.send(host.order({"cpu.shares": "1030"}))
    assert later is not None
    assert later.state == "done"


def test_what_was_there_before_is_brought_back_although_no_bound_allows_it(host: ActingHost) -> None:
    pinned = host.send(host.order({"cpuset.cpus": "1"}))
    assert pinned is not None and pinned.state == "done"
    host.begin()
    host.allowed = Allowed()  # the administrator allows nothing any more
    back = host.send(host.order({"cpuset.cpus": "0-3"}))
    assert back is not None
    assert (back.state, host.text("cpuset.cpus")) == ("done", "0-3")
    again = host.send(host.order({"cpuset.cpus": "1"}))
    assert again is not None and again.state == "refused"


def test_a_memory_that_is_damaged_lets_no_order_count(host: ActingHost, tmp_path: Path) -> None:
    host.send(host.order({"cpu.shares": "2048"}))
    file = tmp_path / "orders.json"
    file.write_text(file.read_text()[:-5])
    with pytest.raises(ValueError, match="orders could count twice"):
        Memory(file)


def test_an_order_that_cannot_be_noted_is_not_carried_out(host: ActingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("profiler.acting.orders.write_whole", full)
    report = host.send(host.order({"cpu.shares": "2048"}))
    assert report is not None
    assert (report.state, host.text("cpu.shares")) == ("failed", "1024")


def test_an_agent_that_is_revoked_or_sees_no_service_asks_more_and_more_seldom(host: ActingHost) -> None:
    host.wire.status = 403
    waits = [host.actor.step() for _ in range(8)]
    assert waits == sorted(waits)
    assert waits[-1] == 60.0
    assert "403" in host.log.getvalue()


def test_reports_are_signed(host: ActingHost) -> None:
    host.send(host.order({"cpu.shares": "2048"}))
    sent = host.wire.reports[0]
    document = json.loads(sent["text"]) | {"state": "failed"}
    with pytest.raises(ValueError, match="not signed"):
        read_report(json.dumps(document), sent["signature"], KEY)


FILE = """
instances = ["shop-*"]
[weight]
lowest = 64
highest = 2048
[pin]
cpus = "2-5"
"""


def test_the_file_of_the_host_says_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "changes.toml"
    file.write_text(FILE)
    file.chmod(0o644)
    allowed = read_allowed(file, owners(tmp_path))
    assert allowed == Allowed(("shop-*",), weight=(64.0, 2048.0), pin=frozenset({2, 3, 4, 5}))
    assert Allowed().instances == ()


@pytest.mark.parametrize("wrong", ["file", "folder", "owner"])
def test_a_file_that_other_users_may_change_is_refused(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    file = folder / "changes.toml"
    file.write_text(FILE)
    file.chmod(0o664 if wrong == "file" else 0o644)
    folder.chmod(0o775 if wrong == "folder" else 0o755)
    allowed = frozenset({4_000_000}) if wrong == "owner" else owners(tmp_path)
    with pytest.raises(ValueError, match="may change it"):
        read_allowed(file, allowed)


@pytest.mark.parametrize(
    "text",
    ["instances = 'shop'", "kinds = 1", "[weight]\nlowest = 'a'", "[weight]\nlowest = 9\nhighest = 3",
     "[pin]\ncpus='x'", "per_hour = -1", "[cap]\nlowest = 1", "[weight]\nlowest = nan", "[[pin]]", "= 1",
     "[tc]\nlowest_mbit = nan", "[tc]\nlowest_mbit = -1", "[tc]\nlowest_mbit = 'a'"],
)  # fmt: skip
def test_a_file_that_says_something_unknown_allows_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "changes.toml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(ValueError, match=r"changes\.toml"):
        read_allowed(file, owners(tmp_path))


def owners(folder: Path) -> frozenset[int]:
    return frozenset({0, folder.stat().st_uid})


@pytest.mark.parametrize("text", ["short", "k" * 31, "k k" * 20, "k" * 2000, "ü" * 40])
def test_a_key_that_is_none_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="openssl rand") as refused:
        check_key(text)
    assert text not in str(refused.value)


class _Killed(BaseException):
    """kill -9."""


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "after it is written"])
def test_an_agent_that_is_killed_in_an_order_repeats_nothing_and_still_knows_the_way_back(
    host: ActingHost, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    def killed(files: GroupFiles, group: str, values: Mapping[str, str]) -> None:
        if after:
            write(files, group, values)
        raise _Killed

    write = GroupFiles.write
    text, signature = signed(host.order({"cpuset.cpus": "1"}), KEY)
    monkeypatch.setattr(GroupFiles, "write", killed)
    with pytest.raises(_Killed):
        host.send_text(text, signature)
    monkeypatch.undo()
    host.begin()
    report = host.send_text(text, signature)
    assert report is not None
    assert (report.state, host.text("cpuset.cpus")) == ("refused", "1" if after else "0-3")
    back = host.send(host.order({"cpuset.cpus": "0-3"}))
    assert back is not None
    assert (back.state, host.text("cpuset.cpus")) == ("done", "0-3")
