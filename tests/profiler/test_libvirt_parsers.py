"""Domain XML and bulk statistics: read as libvirt writes them, refused or read whatever is done to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.backends.libvirt.guests import disk_limit_mb_s
from profiler.parse.libvirt import (
    Bandwidth,
    DomainDescription,
    parse_domain,
    parse_records,
    parse_stats,
    parse_vcpu_times,
    scheduler_number,
)
from profiler.parse.text import ParseError
from tests.examples import examples
from tests.profiler.libvirt_host import LIMITED, PINNED, domain_xml, stats_of
from tests.profiler.mutation import mutated
from tests.profiler.recorded import RECORDINGS

RECORDING = RECORDINGS / "libvirt-tcg.json"


def _recorded(prefix: str) -> Any:
    """The first value whose key begins so."""
    values = json.loads(Path(RECORDING).read_text(encoding="utf-8"))["readings"][0]["values"]
    return next(value[0] for key, value in values.items() if key.startswith(prefix))


def test_a_real_domain_is_described() -> None:
    described = parse_domain(_recorded("libvirt xml"))
    assert (described.vcpus, described.memory_mb) == (1, 96.0)
    assert len(described.bandwidths) == 1


def test_real_statistics_are_read() -> None:
    for record in parse_records(_recorded("libvirt domstats")):
        stats = parse_stats(record.stats)
        assert stats.absent == {}
        assert stats.net_bytes == record.stats["net.0.rx.bytes"] + record.stats["net.0.tx.bytes"]


@pytest.mark.parametrize(
    ("bandwidth", "limit"),
    [
        ("<outbound average='1000'/>", Bandwidth(1000, None)),
        ("<inbound average='9'/>", None),
        ("<inbound average='9' peak='20'/><outbound/>", None),
        ("<inbound average='9'/><outbound average='3000' peak='4000'/>", Bandwidth(3000, 4000)),
    ],
)
def test_a_limit_is_on_what_a_guest_sends(bandwidth: str, limit: Bandwidth | None) -> None:
    interface = f"<interface type='bridge'><bandwidth>{bandwidth}</bandwidth></interface>"
    assert parse_domain(domain_xml("a", devices=interface)).bandwidths == (limit,)


def test_pins_limits_and_memory_are_read() -> None:
    assert parse_domain(domain_xml("a", tuning=PINNED, devices=LIMITED)) == DomainDescription(
        2, 1024.0, ((0, 1), (3,)), (Bandwidth(1000, 2000),), (2_000_000,), direct_disks=True, name="a"
    )


@pytest.mark.parametrize(
    ("disk", "direct"),
    [
        ("<disk type='file'><driver cache='none'/><source file='/a'/></disk>", True),
        ("<disk type='block'><driver cache='directsync'/><source dev='/a'/></disk>", True),
        ("<disk type='file' device='cdrom'><driver/></disk>", True),
        ("<disk type='file'><driver cache='writeback'/><source file='/a'/></disk>", False),
        ("<disk type='file'><source file='/a'/></disk>", False),
        ("<disk type='network'><driver cache='none'/><source protocol='rbd'/></disk>", False),
    ],
)
def test_drives_that_bypass_the_page_cache_of_this_host_are_direct(disk: str, direct: bool) -> None:
    assert parse_domain(domain_xml("a", devices=disk)).direct_disks is direct


def test_vcpus_that_are_plugged_in_count_not_those_that_could_be() -> None:
    text = domain_xml("a").replace("<vcpu placement='static'>2", "<vcpu placement='static' current='3'>8")
    assert parse_domain(text).vcpus == 3


@pytest.mark.parametrize(
    ("cpuset", "tuning", "pins"),
    [
        ("4-5", "", ((4, 5), (4, 5))),
        ("4-7,^5", "", ((4, 6, 7), (4, 6, 7))),
        ("4-5", "<cputune><vcpupin vcpu='1' cpuset='9'/></cputune>", ((4, 5), (9,))),
        ("4-5", "<cputune><emulatorpin cpuset='1'/></cputune>", ((4, 5), (4, 5))),
        ("", "<cputune><vcpupin vcpu='1' cpuset='9'/></cputune>", ((), (9,))),
        ("", "<cputune><emulatorpin cpuset='1'/></cputune>", ((), ())),
        ("", "<cputune><vcpupin vcpu='7' cpuset='9'/></cputune>", ((), ())),
    ],
)
def test_a_vcpu_without_a_pin_of_its_own_has_the_domains_cpuset(
    cpuset: str, tuning: str, pins: tuple[tuple[int, ...], ...]
) -> None:
    vcpu = f"<vcpu placement='static' cpuset='{cpuset}'>2" if cpuset else "<vcpu placement='static'>2"
    assert parse_domain(domain_xml("a", tuning=tuning).replace("<vcpu placement='static'>2", vcpu)).pins == pins


def test_pins_stay_with_their_vcpus_after_an_unplug_in_the_middle() -> None:
    plugged = "".join(
        f"<vcpu id='{number}' enabled='{state}' hotpluggable='yes'/>"
        for number, state in enumerate(("yes", "no", "yes", "yes", "no"))
    )
    pins = "".join(f"<vcpupin vcpu='{number}' cpuset='{10 + number}'/>" for number in range(5))
    text = domain_xml("a", tuning=f"<vcpus>{plugged}</vcpus><cputune>{pins}</cputune>")
    described = parse_domain(text.replace("<vcpu placement='static'>2", "<vcpu placement='static' current='3'>5"))
    assert (described.vcpus, described.pins) == (3, ((10,), (12,), (13,)))
    assert described.labels["vcpu_ids"] == "0,2-3"


def test_a_disk_limit_that_no_disk_reaches_is_none() -> None:
    tune = "<disk><iotune><total_bytes_sec>9223372036854775807</total_bytes_sec></iotune></disk>"
    assert parse_domain(domain_xml("a", devices=tune)).disk_limits == ()


def test_limits_of_reading_and_writing_add_up_and_no_limit_is_none() -> None:
    tune = "<disk><iotune><read_bytes_sec>5</read_bytes_sec><write_bytes_sec>7</write_bytes_sec></iotune></disk>"
    none = "<disk><iotune><total_bytes_sec>0</total_bytes_sec><total_iops_sec>9</total_iops_sec></iotune></disk>"
    assert parse_domain(domain_xml("a", devices=tune + none)).disk_limits == (12,)


_BOTH = "<iotune><read_bytes_sec>5000000</read_bytes_sec><write_bytes_sec>7000000</write_bytes_sec></iotune>"
_GROUP = "<iotune><total_bytes_sec>3000000</total_bytes_sec><group_name>gold</group_name></iotune>"


def _disk(tune: str, source: str = "<source file='/a'/>", device: str = "disk") -> str:
    return f"<disk type='file' device='{device}'>{source}{tune}</disk>"


@pytest.mark.parametrize(
    ("devices", "together_mb_s"),
    [
        (_disk("<iotune><read_bytes_sec>5000000</read_bytes_sec></iotune>"), None),
        (_disk("<iotune><write_bytes_sec>5000000</write_bytes_sec></iotune>"), None),
        (_disk(_BOTH) + _disk(""), None),
        (_disk(_BOTH) + _disk("<iotune><total_bytes_sec>1000000</total_bytes_sec></iotune>"), 13.0),
        (_disk(_BOTH) + _disk("", device="cdrom") + _disk("", source=""), 12.0),
        (_disk(_GROUP) + _disk(_GROUP), 3.0),
    ],
    ids=[
        "reads alone",
        "writes alone",
        "one of two disks",
        "both disks",
        "a CD and an empty drive beside",
        "one group",
    ],
)
def test_a_domain_has_a_disk_limit_where_each_way_of_each_disk_is_limited(
    devices: str, together_mb_s: float | None
) -> None:
    assert disk_limit_mb_s(parse_domain(domain_xml("a", devices=devices)).disk_limits) == together_mb_s


def test_a_limit_of_a_device_of_the_host_is_one_of_the_disk_that_is_that_device() -> None:
    tune = "<blkiotune><device><path>/dev/vg/a</path><read_bytes_sec>{}</read_bytes_sec>{}</device></blkiotune>"
    both = tune.format(2_000_000, "<write_bytes_sec>1000000</write_bytes_sec>")
    disk = "<disk type='block' device='disk'><source dev='/dev/vg/{}'/></disk>"
    for tuning, name, limits in (
        (both, "a", (3_000_000,)),
        (both, "b", (None,)),
        (tune.format(2_000_000, ""), "a", (None,)),
    ):
        assert parse_domain(domain_xml("a", tuning=tuning, devices=disk.format(name))).disk_limits == limits


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml",
        "<network/>",
        "<domain/>",
        "<domain><vcpu>x</vcpu><memory>1</memory></domain>",
        "<domain><vcpu>0</vcpu><memory>1</memory></domain>",
        "<domain><vcpu>99999999</vcpu><memory>1</memory></domain>",
        "<domain><vcpu>1</vcpu></domain>",
        "<domain><vcpu>1</vcpu><memory unit='parsec'>1</memory></domain>",
        domain_xml("a", tuning="<cputune><vcpupin vcpu='0' cpuset='3-1'/></cputune>"),
        domain_xml("a", tuning="<cputune><vcpupin cpuset='3'/></cputune>"),
        domain_xml("a") + "<domain/>",
        domain_xml("a" * (1 << 20)),
        '<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + domain_xml("&b;"),
        domain_xml("\x00"),
    ],
)
def test_xml_that_is_no_domain_is_refused(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_domain(text, "libvirt xml u")
    assert "libvirt xml u, line " in str(caught.value)


def test_an_interface_without_counters_makes_traffic_absent_not_zero() -> None:
    stats = stats_of(5, 6)
    del stats["net.0.rx.bytes"], stats["net.0.name"]
    read = parse_stats(stats)
    assert (read.net_bytes, read.disk_bytes) == (None, 6)
    assert "passed through" in read.absent["net_bytes"]


def test_a_busy_drive_makes_disk_bytes_absent_and_an_empty_one_does_not() -> None:
    stats = stats_of(5, 6)
    assert parse_stats(stats).disk_bytes == 6
    del stats["block.0.rd.bytes"]
    read = parse_stats(stats)
    assert read.disk_bytes is None
    assert "another job" in read.absent["disk_bytes"]


def test_a_guest_without_devices_exchanged_nothing() -> None:
    read = parse_stats({"net.count": 0, "block.count": 0})
    assert (read.net_bytes, read.disk_bytes) == (0, 0)


@pytest.mark.parametrize("value", [-1, True, 1.5, "7", None, 1 << 64, []])
def test_a_value_that_is_no_counter_is_absent(value: object) -> None:
    read = parse_stats(stats_of(1, 2) | {"net.0.rx.bytes": value})
    assert read.net_bytes is None
    assert read.disk_bytes == 2


def test_absurd_numbers_of_devices_are_refused_at_once() -> None:
    assert parse_stats({"net.count": 10**12, "block.count": 0}).net_bytes is None


def test_times_of_vcpus_that_are_not_plugged_in_are_left_out() -> None:
    assert parse_vcpu_times({"vcpu.maximum": 4, "vcpu.0.time": 5, "vcpu.2.time": 6}) == 11


@pytest.mark.parametrize("stats", [{}, {"vcpu.maximum": 0}, {"vcpu.maximum": 10**9}, {"vcpu.maximum": 2}])
def test_times_of_no_vcpus_are_refused(stats: dict[str, int]) -> None:
    with pytest.raises(ParseError):
        parse_vcpu_times(stats)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "7", None])
def test_a_quota_that_limits_nothing_is_none(value: object) -> None:
    assert scheduler_number({"vcpu_quota": value}, "vcpu_quota") is None
    assert scheduler_number(value, "vcpu_quota") is None


@settings(max_examples=examples(300), deadline=None)
@given(mutated(domain_xml("a", tuning=PINNED, devices=LIMITED)))
def test_mutated_xml_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        described = parse_domain(text)
    except ParseError as error:
        assert error.line >= 1
    else:
        assert described.vcpus >= 1
        assert all(limit is None or limit > 0 for limit in described.disk_limits)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from([*stats_of(1, 1), "net.1.rx.bytes"]), _JSON, max_size=6))
def test_statistics_of_any_kind_are_counters_or_absent_with_a_reason(changes: dict[str, Any]) -> None:
    read = parse_stats(stats_of(3, 4) | changes)
    for name in ("net_bytes", "disk_bytes"):
        value = getattr(read, name)
        assert (value is None) == (name in read.absent)
        assert value is None or (type(value) is int and value >= 0)


@settings(max_examples=examples(300), deadline=None)
@given(_JSON)
def test_any_answer_is_a_list_of_domains_or_refused(answer: Any) -> None:
    try:
        records = parse_records(answer)
    except ParseError:
        return
    assert all(isinstance(record.name, str) for record in records)


@pytest.mark.parametrize(
    ("unit", "megabytes"),
    [("", 1), (" unit='MB'", 1e9 / 2**20), (" unit='GiB'", 2**20), (" unit='G'", 2**20), (" unit='bytes'", 2**-10),
     (" unit='kB'", 1e6 / 2**20), (" unit='t'", 2**30)],
)  # fmt: skip
def test_memory_is_reported_in_any_of_libvirts_units(unit: str, megabytes: float) -> None:
    """By the table of formatdomain, "memory": 1024 of each."""
    times = 1024 if unit not in {" unit='MB'", " unit='kB'"} else 1000
    described = parse_domain(f"<domain><vcpu>1</vcpu><memory{unit}>{times}</memory></domain>")
    assert described.memory_mb == pytest.approx(megabytes)


@pytest.mark.parametrize(
    ("devices", "stays"),
    [
        ("", False),
        ("<hostdev mode='subsystem' type='pci' managed='yes'/>", True),
        ("<hostdev mode='subsystem' type='mdev'/>", True),
        ("<hostdev mode='capabilities' type='misc'/>", False),
        ("<interface type='hostdev'/>", True),
        ("<interface type='hostdev'><teaming type='transient' persistent='n0'/></interface>", False),
        ("<interface type='network'/>", False),
    ],
)
def test_a_domain_with_a_device_of_its_host_never_moves(devices: str, stays: bool) -> None:
    text = f"<domain><name>d</name><memory>1024</memory><vcpu>1</vcpu><devices>{devices}</devices></domain>"
    assert (parse_domain(text).labels.get("never_move") == "true") == stays
