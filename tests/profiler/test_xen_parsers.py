"""Parsers of Xen's tools: names that may be anything, and answers that are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.parse.text import ParseError
from profiler.parse.xen import (
    device_of,
    interface_of,
    parse_interrupts,
    parse_netback_rings,
    parse_sched,
    parse_vcpu_list,
    parse_vif_rate,
    parse_xenstore,
    parse_xl_fields,
    parse_xl_info,
    parse_xl_list,
    vif_rate_mbit,
)
from tests.examples import examples
from tests.profiler.test_xen_recordings import RECORDINGS
from tests.profiler.xen_host import HEADER, Guest, XenHost, two_guests

Parser = Callable[[str], object]
HOST = two_guests()
RING = HOST.files["/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0"]


def _text(key: str) -> str:
    return str(HOST.values[key])


PARSERS: list[tuple[Parser, str]] = [
    (parse_xl_list, _text("xl list -v")),
    (parse_vcpu_list, _text("xl vcpu-list")),
    (parse_sched, _text("xl sched-credit")),
    (parse_xl_info, _text("xl info")),
    (parse_xl_fields, _text("xl info")),
    (parse_xenstore, _text("xenstore-ls -f /local/domain")),
    (parse_interrupts, str(HOST.files["/proc/interrupts"])),
    (parse_netback_rings, str(RING)),
    (parse_vif_rate, "62500,50000"),
]
_REAL: dict[Parser, str] = {
    parse_xl_list: "xl-list-v.txt",
    parse_vcpu_list: "xl-vcpu-list.txt",
    parse_sched: "xl-sched-credit.txt",
    parse_xl_info: "xl-info-n.txt",
    parse_xenstore: "xenstore-ls-vif1.txt",
    parse_interrupts: "proc-interrupts-dom0-2.txt",
}
if RECORDINGS.is_dir():
    PARSERS += [(parser, (RECORDINGS / name).read_text(encoding="utf-8")) for parser, name in _REAL.items()]

NAMES = [
    "a b", "-d", "--help", "17", "1 2 3", "ü" * 100, "x" * 255, "vm1   5   10   1 r-----   1.0", "a = b", "💾",
    "VCPUs(sec):",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_found_whatever_the_name_is(name: str) -> None:
    host = XenHost(guests={0: Guest("Domain-0"), 7: Guest(name, 3.5, 96, "r-----", 2, "0", 99, 5)})
    listed = parse_xl_list(str(host.values["xl list -v"]))[7]
    assert (listed.name, listed.memory_mb, listed.vcpus, listed.cpu_ns) == (name, 96, 2, 3_500_000_000)
    assert parse_vcpu_list(str(host.values["xl vcpu-list"]))[7, 1].domid == 7
    share = parse_sched(str(host.values["xl sched-credit"]))[7]
    assert (share.name, share.weight, share.cap_percent) == (name, 99, 5)


@pytest.mark.parametrize(
    ("columns", "uuid"),
    [
        (" 24d74c32-4aec-4c04-9243-4f98c8725b0e        -                -", "24d74c32-4aec-4c04-9243-4f98c8725b0e"),
        (" 24d74c32-4aec-4c04-9243-4f98c8725b0e        3 system_u:vm_r:g", "24d74c32-4aec-4c04-9243-4f98c8725b0e"),
        (" 00000000-0000-0000-0000-000000000000        -                -", ""),
    ],
    ids=["guest", "labelled", "none given"],
)
def test_a_guest_has_the_uuid_that_its_toolstack_gave_it(columns: str, uuid: str) -> None:
    row = "5f0c0a51-0000-4000-8000-000000000009         3   192     1     -b----      10.0"
    text = HEADER + "Domain-0 0 640 1 r----- 158.0 00000000-0000-0000-0000-000000000000 - -\n" + row + columns + "\n"
    assert [domain.uuid for domain in parse_xl_list(text).values()] == ["", uuid]
    plain = parse_xl_list(f"{HEADER.partition('UUID')[0]}\nDomain-0 0 640 1 r----- 158.0\n{row}\n")
    assert [domain.uuid for domain in plain.values()] == ["", ""]


def test_what_older_versions_and_other_schedulers_lack_is_unknown_and_not_zero() -> None:
    text = "Name                                ID Weight\nDomain-0                             0    256\n"
    assert parse_sched(text)[0].cap_percent is None
    assert parse_sched("") == {}


@pytest.mark.parametrize(
    "guest",
    [Guest("(null)"), *(Guest("old", state=state) for state in ("--ps--", "-----d", "--psc-", "---s?-", "--p---"))],
    ids=lambda guest: guest.name + guest.state,
)
def test_a_domain_that_ended_or_ends_or_has_no_name_is_gone_and_a_paused_one_is_not(guest: Guest) -> None:
    host = XenHost(guests={0: Guest("Domain-0"), 1: guest})
    assert parse_xl_list(str(host.values["xl list -v"]))[1].gone is (guest.state != "--p---")


def test_an_offline_vcpu_has_no_pcpu() -> None:
    text = _text("xl vcpu-list") + "vm2                                  2     1     -   --p       0.0  all / all\n"
    vcpu = parse_vcpu_list(text)[2, 1]
    assert (vcpu.cpu, vcpu.state, vcpu.hard) == (None, "--p", None)


def test_interrupts_are_summed_over_cpus() -> None:
    text = "           CPU0       CPU1\n 29:  10   5   xen-dyn    -event     a name\nERR:          7\n"
    interrupts = parse_interrupts(text)
    assert (interrupts["29"].count, interrupts["29"].name, interrupts["29"].interdomain) == (15, "a name", True)
    assert interrupts["ERR"].count == 7


def test_timers_virqs_and_devices_are_no_events_among_domains() -> None:
    text = "   CPU0\n 24: 1  xen-percpu    -virq      timer0\n 31: 2   xen-dyn    -virq      mce\n"
    text += " 34: 3  xen-pirq    -msi-x     virtio1-req.0\n 35: 4  xen-dyn-lateeoi    -event     vif1.0-q0-tx\n"
    assert [number for number, line in parse_interrupts(text).items() if line.interdomain] == ["35"]


def test_rates_of_all_vifs_are_added_and_one_without_means_no_limit() -> None:
    base = "/local/domain/0/backend/vif/3"
    nodes = {
        f"{base}/0/rate": "62500,50000",
        f"{base}/1/rate": "125000,50000",
        "/local/domain/0/backend/vif/30/0/a": "",
    }
    assert vif_rate_mbit(nodes, 3) == 30.0
    assert vif_rate_mbit({**nodes, f"{base}/2/handle": "2"}, 3) is None
    assert vif_rate_mbit({}, 3) is None


def test_devices_and_interfaces_are_reported_by_their_names() -> None:
    assert device_of("vbd-3-51712") == ("vbd", 3, 51_712)
    assert interface_of("vif12.1") == (12, 1)
    assert interface_of("vif12.1-emu") == (12, 1)
    assert [device_of(name) for name in ("vbd-51712", "vif-1-0x", "pci-1-0", "vbd-٣-0")] == [None] * 4
    assert [interface_of(name) for name in ("vif1", "vifx.0", "xvif1.0", "eth0")] == [None] * 4


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (parse_xl_list, ""),
        (parse_xl_list, _text("xl list -v").replace("10.0", "10,0")),
        (parse_xl_list, _text("xl list -v").replace("Name", "Nom ")),
        (parse_xl_list, _text("xl list -v")[:-60]),
        (parse_xl_list, _text("xl list -v").replace("    0   640", "   32752   640")),
        (parse_xl_list, _text("xl list -v") + _text("xl list -v").splitlines()[-1]),
        (parse_xl_list, _text("xl list -v").replace(" 192 ", " ١٩٢ ")),
        (parse_vcpu_list, _text("xl vcpu-list").replace("0-1 / all", "1-0 / all")),
        (parse_vcpu_list, _text("xl vcpu-list").replace("0-1 / all", "0-99999 / all")),
        (parse_sched, _text("xl sched-credit").replace(" 512 ", " 99999 ")),
        (parse_sched, "Cpupool Pool-0: [sched params unavailable]\n"),
        (parse_xl_info, _text("xl info").replace("2000.000", "2000,000")),
        (parse_xl_info, _text("xl info").replace("nr_cpus                : 2", "nr_cpus                : 0")),
        (parse_xl_info, _text("xl info").replace("xen_scheduler", "ordonnanceur")),
        (parse_netback_rings, str(RING).replace("RX:", "XX:")),
        (parse_netback_rings, str(RING).replace("cons 30", "cons 4294967296")),
        (parse_netback_rings, str(RING).replace("cons 30", "cons -30")),
        (parse_xenstore, '/a = "b\n'),
        (parse_interrupts, " 29:  10 xen-dyn -event a\n"),
        (parse_interrupts, "  CPU0\n 29:  10  11 xen-dyn -event a\n"),
        (parse_vif_rate, "62500,0"),
    ],
)
def test_damaged_text_is_refused(parser: Parser, text: str) -> None:
    with pytest.raises(ParseError):
        parser(text)


def test_rows_of_absurd_length_are_refused_in_no_time() -> None:
    for filler in (" ", "1 ", "x", " 1"):
        with pytest.raises(ParseError):
            parse_xl_list(f"{_text('xl list -v')}x{filler * 2_000_000}")


@settings(max_examples=examples(100), deadline=None)
@given(
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=255).filter(
        lambda n: n == n.strip(" ")
    ),
    st.integers(1, 32_000),
    st.integers(1, 512),
)
def test_any_name_comes_back_as_it_was(name: str, domid: int, vcpus: int) -> None:
    host = XenHost(guests={0: Guest("Domain-0"), domid: Guest(name, vcpus=vcpus)})
    listed = parse_xl_list(str(host.values["xl list -v"]))[domid]
    assert (listed.name, listed.vcpus) == (name, vcpus)
