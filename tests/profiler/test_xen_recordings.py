"""Every file recorded on a real Xen is read with a checked fact, or the reason stands here why no machine reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.backends.xen.scheduling import RunStates
from profiler.parse.proc import parse_net_dev, parse_stat
from profiler.parse.text import ParseError
from profiler.parse.xen import (
    Share,
    parse_interrupts,
    parse_netback_rings,
    parse_sched,
    parse_vcpu_list,
    parse_xenstore,
    parse_xl_fields,
    parse_xl_info,
    parse_xl_list,
)

RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings" / "xen"
MHZ = 2596.122  # cpu_mhz of xl-info.txt
FILES = sorted(RECORDINGS.iterdir()) if RECORDINGS.is_dir() else []
needs_recordings = pytest.mark.skipif(not FILES, reason=f"the recordings of Xen are not at {RECORDINGS}")


def _cpu_s(text: str) -> list[float]:
    return [row.cpu_ns / 1e9 for row in parse_xl_list(text).values()]


def _uuids(text: str) -> list[str]:
    return [row.uuid for row in parse_xl_list(text).values()]


def _refused(parser: Callable[[str], object]) -> Callable[[str], bool]:
    def refuses(text: str) -> bool:
        with pytest.raises(ParseError):
            parser(text)
        return True

    return refuses


def _shares(text: str) -> list[Share]:
    return list(parse_sched(text).values())


def _records(name: str) -> int:
    states = RunStates(MHZ)
    states.feed((RECORDINGS / name).read_bytes())
    return states.records


DEFAULT_SHARES = [Share("Domain-0", 256, 0), Share("vm1", 256, 0), Share("vm2", 256, 0)]
PINNED = {(0, 0): (0,), (1, 0): (1,), (2, 0): (1,)}
# File → what reads it, and what must come out.
FACTS: dict[str, tuple[Callable[[str], object], object]] = {
    "credit2-boot-xl-info.txt": (lambda t: parse_xl_info(t).scheduler, "credit2"),
    "credit2-boot-xl-list-v.txt": (
        lambda t: (_cpu_s(t), _uuids(t)),
        ([76.4, 15.1, 17.2], ["", "24d74c32-4aec-4c04-9243-4f98c8725b0e", "e74c478f-a64a-4dcb-ac1e-7c41dbb84769"]),
    ),
    "credit2-boot-xl-sched-credit-d1.txt": (_refused(parse_sched), True),
    "credit2-boot-xl-sched-credit-s.txt": (_refused(parse_sched), True),
    "credit2-boot-xl-sched-credit.txt": (_shares, []),
    "credit2-boot-xl-sched-credit2-s.txt": (_shares, []),
    "credit2-boot-xl-sched-credit2.txt": (_shares, DEFAULT_SHARES),
    "credit2-boot-xl-vcpu-list.txt": (lambda t: {key: v.hard for key, v in parse_vcpu_list(t).items()}, PINNED),
    "proc-interrupts-dom0-2.txt": (
        lambda t: sorted(i.name for i in parse_interrupts(t).values() if i.interdomain and i.name.startswith("vif")),
        ["vif1.0-q0-rx", "vif1.0-q0-tx", "vif2.0-q0-rx", "vif2.0-q0-tx"],
    ),
    "proc-net-dev-dom0.txt": (lambda t: parse_net_dev(t)["vif1.0"].received, 940_403_367),
    "proc-stat-dom0.txt": (lambda t: parse_stat(t).ticks["steal"], 2051),
    "xenstore-ls-f.txt": (lambda t: parse_xenstore(t)["/local/domain/2/device/vif/0/backend-id"], "0"),
    "xenstore-ls-vif1.txt": (lambda t: len(parse_xenstore(t)), 23),
    "xl-info-n.txt": (lambda t: parse_xl_fields(t)["xen_scheduler"], "credit"),
    "xl-info.txt": (lambda t: (parse_xl_info(t).pcpus, parse_xl_info(t).cpu_mhz), (2, MHZ)),
    "xl-list-cpupool.txt": (_cpu_s, [192.6, 136.8, 56.1]),
    "xl-list-n.txt": (_cpu_s, [193.6, 137.2, 56.6]),
    "xl-list-v.txt": (
        lambda t: (_cpu_s(t), _uuids(t)),
        ([158.0, 119.8, 43.4], ["", "d5ef019f-771b-4000-a946-bd0d7b8cf831", "29f66efa-45f2-41fc-821f-df14a50c01d3"]),
    ),
    "xl-list.txt": (lambda t: [row.memory_mb for row in parse_xl_list(t).values()], [640, 192, 192]),
    "xl-sched-credit-d1.txt": (_shares, [Share("vm1", 256, 0)]),
    "xl-sched-credit-s.txt": (_shares, []),
    "xl-sched-credit-v.txt": (_shares, DEFAULT_SHARES),
    "xl-sched-credit.txt": (_shares, DEFAULT_SHARES),
    "xl-sched-credit2-s.txt": (_refused(parse_sched), True),
    "xl-sched-credit2.txt": (_shares, []),
    "xl-sched-rtds.txt": (_shares, []),
    "xl-vcpu-list-2.txt": (lambda t: [v.cpu for v in parse_vcpu_list(t).values()], [0, 1, 1]),
    "xl-vcpu-list.txt": (lambda t: [v.state for v in parse_vcpu_list(t).values()], ["r--", "---", "r--"]),
}
TRACES = {
    "xentrace-mem-0x10f000.bin": 5814,
    "xentrace-mixed-0x329000-co1k100k-head.bin": 9992,
    "xentrace-mixed-0x329000-co1k1k-head.bin": 9751,
    "xentrace-mixed-0x329000-solo1k-head.bin": 9587,
    "xentrace-sched-min-0x21000.bin": 2654,
}
_DEBUG = "answer of one of Xen's debugging keys: free text for developers that changes with versions"
_XENMON = "xenmon misreads the records of Xen 4.17, so its figures are wrong and nothing uses them"
_ANALYSED = "made from traces by the authors of the recordings; test_xen_trace.py compares with it"
# Pattern → why no part of the profiler reads it.
NOT_READ = {
    r"bridge-link\.txt": "bridges are not measured; which vifs there are stands in /proc/net/dev",
    r"controls-cap-weight-tc\.txt": "log of an experiment, made of several tools' lines",
    r"counters-.*": "made by a script of /proc, debugfs and xl; test_xen_trace.py compares with it",
    r"(credit2-boot-)?xenalyze-(summary.*|dump-all-head|sched-summary)\.txt": "its trace was not kept, and xenalyze "
    "scales times with 2.4 GHz whatever the host has",
    r"xenalyze-help\.txt": "help text",
    r"(credit2-boot-)?xl-dmesg-.*": _DEBUG,
    r"debugfs-xen-netback\.txt": "files of both vifs in one; read by their own test below",
    r"debugfs-xen\.txt": "list of files",
    r"derived-.*": _ANALYSED,
    r"metrics-table\.txt": _ANALYSED,
    r"domU.-proc\.txt": "seen inside a guest, where the profiler does not run",
    r"ethtool-.*": "settings and driver of an interface; its counts stand in /proc/net/dev",
    r"ip-s-link\.txt": "the same counts as /proc/net/dev, printed for people",
    r"lsevtchn-.*": "ports of event channels without counts",
    r"proc-xen-privcmd\.txt": "list of files, and /proc/xen/capabilities, which test_xen_backend.py covers",
    r"sys-bus-xen-backend\.txt": "list of files; their names are read by their own test below",
    r"sys-class-net-vif1-stats\.txt": "the same counts as /proc/net/dev, by name",
    r"sys-netback-params\.txt": "parameters of a module that change nothing in what it counts",
    r"tc-qdisc-vif\.txt": "queueing disciplines; the profiler reads limits of vifs from xenstore",
    r"throughput-.*": "results of a load generator",
    r"xenbaked-.*": _XENMON,
    r"xenmon-.*": _XENMON,
    r"xenhypfs-tree\.txt": "names of parameters without values",
    r"xenlockprof\.txt": "error message: this Xen has no lock profile",
    r"xenperf\.txt": "error message: this Xen has no performance counters",
    r"xenpm-.*": "idle states since boot and missing frequency scaling: conditions, no metric",
    r"xentrace-(all|hyp|mem|run|sched-min)\.txt": "what xentrace says on stderr when it starts",
    r"xl-top-help\.txt": "help text",
    r"(credit2-boot-)?xentop-.*": "two programs would read the same counts; the profiler takes times from xentrace",
    r"xl-(cpupool-list|list-long|network-list-vm1|uptime)\.txt": "pools, configurations and ages that no metric needs",
}


def _why_not(name: str) -> list[str]:
    return [reason for pattern, reason in NOT_READ.items() if re.fullmatch(pattern, name)]


@needs_recordings
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recorded_file_has_one_reader_or_one_reason(path: Path) -> None:
    readers = (path.name in FACTS) + (path.name in TRACES) + len(_why_not(path.name))
    assert readers == 1


@needs_recordings
@pytest.mark.parametrize("name", FACTS)
def test_recorded_text_gives_the_fact_that_stands_in_it(name: str) -> None:
    read, fact = FACTS[name]
    assert read((RECORDINGS / name).read_text(encoding="utf-8")) == fact


@needs_recordings
@pytest.mark.parametrize("name", TRACES)
def test_recorded_traces_are_read_to_their_last_record(name: str) -> None:
    assert _records(name) == TRACES[name]


@needs_recordings
def test_recorded_rings_of_both_vifs_are_read() -> None:
    text = (RECORDINGS / "debugfs-xen-netback.txt").read_text(encoding="utf-8")
    parts = re.split(r"== \S+/(vif\d+\.\d+)/io_ring_q0\n", text)[1:]
    rings = {name: parse_netback_rings(part) for name, part in zip(parts[::2], parts[1::2], strict=True)}
    assert rings == {
        "vif1.0": (830_916, 379_958),
        "vif2.0": (527_692, 169_389),
    }
