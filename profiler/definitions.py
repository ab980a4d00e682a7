"""The definitions of the eight metrics for each hypervisor, and which of them a host gives.

`python -m profiler.definitions > docs/metrics.md` writes the page of them anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from profiler.backends import Counters
from profiler.collectors import Collected, collect
from profiler.host_kinds import TRAITS
from profiler.metrics import EIGHT, Metric, Scope


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric on one hypervisor: its source, formula, what it means there, its distance from the paper's definition
    (NEIGHBOR, section 3.4) and how it was verified (the test and what it is compared with)."""

    metric: str
    source: str
    formula: str
    distance: str
    verified: str


_LAB = "tests/xen (make test-xen, real Xen with two paravirtual guests): "
_PLAIN = "tests/profiler/test_xen_trace.py: test_times_are_those_of_a_plain_reading of real traces"
_TRACE = "xentrace's records of run-state changes (0x21xxx), which carry the time stamp counter"

_XEN: tuple[Definition, ...] = (
    Definition(
        "event",
        "/proc/interrupts of Dom0, lines `xen-dyn… -event` (interdomain event channels, without timers, IPIs and "
        "VIRQs); with trace=full instead the event_channel_op hypercalls (0x20100d, operation 32) of all PV domains",
        "Δ upcalls / Δt, or Δ operations / Δt",
        "Upcalls are the notifications that Dom0 received: those that it sends are not in them, and several sent while "
        "one is handled are one. Operations hold both directions and unmasking and binding too, none of them "
        "of HVM guests, whose calls are no PV hypercalls. Between two guests nothing is seen without trace=full.",
        f"{_LAB}test_events_are_the_interrupts_of_the_guests_channels; operations in tests/profiler/test_xen_trace.py: "
        "test_hypercalls_are_counted_whole against a plain reading of real traces",
    ),
    Definition(
        "switch",
        f"{_TRACE}, by pCPU: a vCPU of another domain than the last one comes to run",
        "Δ switches of a pCPU between domains, the idle domain included, / Δt",
        "As what Xen itself records as sched_switch. Going idle and coming back are two switches although they are "
        "none among VMs: a lone guest that sleeps often has many. Switches between vCPUs of one domain are not in it.",
        "tests/profiler/test_xen_trace.py: test_switches_are_those_that_the_scheduler_itself_recorded "
        f"(0x2800a records of the same real traces); {_LAB}"
        "test_executions_and_switches_are_those_of_xenalyze",
    ),
    Definition(
        "pages_exchanged",
        "/sys/kernel/debug/xen-netback/vifD.N/io_ring_q*: slots that netback took from both rings; sectors of "
        "/sys/devices/vbd-D-N/statistics; driver domain: the sum of its guests, with trace=full the pages that Dom0 "
        "mapped or copied by grant_table_op (0x20100d, operation 20)",
        "(Δ (tx cons + rx cons) + Δ sectors · 512 / 4096) / Δt",
        "A slot is a page granted, whatever part of it a packet fills, in both directions; the paper says that sending "
        "involves no explicit exchange of pages, so that this counts more than its words. Requests of "
        "blkback may use part of a page, so disks count a little less. Disks served by QEMU (qdisk), devices of driver "
        "domains and emulated cards have no rings in Dom0: absent, or made of bytes.",
        f"{_LAB}test_pages_are_the_slots_of_the_rings, test_pages_carry_the_packets_and_bytes_of_the_interface; disks "
        "on files made after the kernel's source (drivers/block/xen-blkback) only",
    ),
    Definition(
        "execution",
        f"{_TRACE}: a vCPU goes from runnable to running",
        "Σ Δ changes to running / Δt",
        "As in the paper. A vCPU that the scheduler lets run on when its time slice ends goes on with one period.",
        f"{_LAB}test_executions_and_switches_are_those_of_xenalyze; {_PLAIN}",
    ),
    Definition(
        "pages_per_execution",
        "the two above",
        "pages_exchanged / execution",
        "As its parts. The trace is counted 0.3 s behind the rings, so over single seconds the two may be shifted.",
        f"{_LAB}test_pages_per_execution_is_their_quotient",
    ),
    Definition(
        "cpu",
        f"{_TRACE}; without xentrace: Time(s) of `xl list`, which resolves 0.1 s (10 % of a CPU at a reading a second)",
        "Σ Δ time running / Δt",
        "As in the paper. Xen counts a vCPU's hypercalls and exits for it, and interrupts that hit while it ran. Times "
        "are those until 0.3 s before the reading, of windows as long.",
        f"{_LAB}test_cpu_is_what_xl_accounts; {_PLAIN}",
    ),
    Definition(
        "waiting",
        _TRACE,
        "Σ Δ time runnable / Δt",
        "As in the paper. A vCPU that a cap holds back stays runnable under credit2 and waits; credit pauses it, and "
        "its time is in block.",
        f"{_LAB}test_waiting_is_what_the_guest_sees_stolen, test_cpu_and_waiting_are_those_of_xenalyze; {_PLAIN}",
    ),
    Definition(
        "block",
        _TRACE,
        "100 · vCPUs − cpu − waiting",
        "As in the paper: blocked on I/O and idle alike; also time paused, as by a cap under credit.",
        f"{_LAB}test_running_waiting_and_blocked_fill_the_time_of_the_vcpu; {_PLAIN}",
    ),
)


_KVM = "tests/libvirt (make test-libvirt, two real guests under TCG): "

_LIBVIRT: tuple[Definition, ...] = (
    Definition(
        "event",
        "KVM's debugfs sums `exits` and `irq_injections` below /sys/kernel/debug/kvm (root); where they are missing or "
        "may not be read, voluntary switches in `status` of all threads of QEMU",
        "Δ(exits + irq_injections) / Δt, else Δ voluntary switches / Δt",
        "KVM has no event channel. A notification of a guest is an exit and one to a guest an injected interrupt, but "
        "exits also come from timers and page faults, so there are more of them. Wakes stand in under TCG: each ends a "
        "sleep on an eventfd, a signal, a timer or a lock of QEMU; several notifications may share one. The two are "
        "not comparable, so a backend keeps to the one that its first reading found.",
        f"{_KVM}test_load_raises_events_and_the_driver_domains_cpu; the debugfs sums on files made after the kernel's "
        "source only, for no KVM was at hand",
    ),
    Definition(
        "switch",
        "third number of schedstat of all vCPU threads, of QEMU's other threads and of the kernel's I/O threads",
        "Σ Δ timeslices / Δt",
        "The paper counts switches of the VMM among VMs. Here every switch of such a thread counts, also between two "
        "threads of one guest's QEMU, and not the host's other processes.",
        f"{_KVM}test_executions_and_switches_are_the_switches_that_the_kernel_counts compares it with voluntary plus "
        "involuntary switches in `status`",
    ),
    Definition(
        "pages_exchanged",
        "net.*.rx/tx.bytes of virConnectGetAllDomainStats (the host side of the tap), and block.*.rd/wr.bytes of it "
        "(QEMU's block layer) or, where all drives have cache none or directsync, /proc/<pid>/io of QEMU; driver: "
        "the sum of all instances",
        "(Δ network bytes + Δ block bytes) / 4096 / Δt",
        "Nothing is granted or flipped: virtio copies or maps. A small packet is a whole page on Xen and a part of one "
        "here. Passed-through devices and user-mode networks have no counters on the host: the metric is absent.",
        f"{_KVM}test_pages_are_the_bytes_of_the_tap compares with the kernel's counters of the tap, "
        "test_what_a_guest_writes_to_its_disk_counts_as_pages with what the guest wrote",
    ),
    Definition(
        "execution",
        "third number of schedstat of each vCPU thread; driver domain: of QEMU's other threads and the kernel's I/O "
        "threads, and the host's network and block softirqs",
        "Σ Δ timeslices / Δt",
        "As in the paper: how often a vCPU is put on a CPU. With halt polling a vCPU that sleeps for under 0.2 ms "
        "stays on its CPU, and a period on Xen would have ended. Under TCG the thread also stops for QEMU's own lock.",
        f"{_KVM}test_executions_and_switches_are_the_switches_that_the_kernel_counts",
    ),
    Definition(
        "pages_per_execution",
        "the two above",
        "pages_exchanged / execution",
        "As its parts.",
        f"{_KVM}test_pages_are_the_bytes_of_the_tap",
    ),
    Definition(
        "cpu",
        "first number of schedstat of each vCPU thread; driver domain: of QEMU's other threads (main loop, I/O "
        "threads, vhost) and the kernel's I/O threads, and irq and softirq ticks of the host",
        "Σ Δ run time / Δt, 100 = one whole CPU",
        "The guest's own time and what the host does in its vCPU threads for it: exits, halt polling, and under TCG "
        "the emulation of devices that the vCPU touches. The driver domain has as many virtual CPUs as the host "
        "has, for its threads run on any.",
        f"{_KVM}test_cpu_is_what_the_kernel_accounts_to_the_vcpu_threads compares with utime + stime in `stat`, "
        "test_guests_and_their_driver_domain_together_are_the_qemu_processes with those of the whole processes",
    ),
    Definition(
        "waiting",
        "second number of schedstat of each vCPU thread; driver domain: of the same threads as its cpu",
        "Σ Δ time runnable and not running / Δt, at most 100 · vcpus − cpu",
        "As in the paper for a guest: its vCPUs are what waits. Time that a vCPU is throttled by its quota counts as "
        "blocked, not as waiting. What a guest sees as steal is this, and is not read inside it.",
        f"{_KVM}test_waiting_rises_when_two_busy_vcpus_share_one_cpu: alone below 15 %, together 35-60 %",
    ),
    Definition(
        "block",
        "what cpu and waiting leave",
        "100 · vcpus − cpu − waiting, never below 0",
        "As in the paper it holds blocked on I/O, and idle.",
        f"{_KVM}test_idle_guests_use_no_cpu_and_are_blocked",
    ),
)


_REAL = "tests/profiler/test_containers_real.py: "
_TASKS = "tests/profiler/test_linux_tasks.py: "

_LXC: tuple[Definition, ...] = (
    Definition(
        "event",
        "line `softirq` of /proc/stat: NET_TX, NET_RX and BLOCK of all CPUs",
        "Δ softirqs / Δt",
        "Linux has no event channel. On Xen an event notifies a domain of I/O, here a softirq does that work; several "
        "packets may share one softirq, as several notifications may share one event. The whole host is counted, "
        "load generators and whatever else does I/O on it included.",
        f"{_REAL}test_events_are_the_softirqs_of_the_host compares with /proc/softirqs while datagrams flow",
    ),
    Definition(
        "switch",
        "third number of schedstat (arrivals on a CPU) of all instances' tasks and of the kernel's I/O threads; each "
        "arrival is one switch to the task, so `status` with its switch counts is not read",
        "Σ Δ timeslices / Δt",
        "The paper counts switches of the VMM among VMs. Switches between two tasks of one container are in here, and "
        "those to the host's other processes are not.",
        f"{_TASKS}test_timeslices_are_the_switches_of_a_task_within_one compares with voluntary plus involuntary "
        "switches in `status`",
    ),
    Definition(
        "pages_exchanged",
        "network: the host's ends of the container's veth pairs in /proc/net/dev (which end is whose is asked over "
        "netlink), else the interfaces in its namespace; disk: `io.stat` (v2), `blkio.throttle.io_service_bytes` (v1), "
        "each request once where devices lie on others (LVM, md), or, "
        "where the group does not count, `io` of every task; driver domain: the sum of all instances",
        "(Δ network bytes both ways + Δ block bytes read and written) / 4096 / Δt",
        "Nothing is granted or flipped. A small packet is a whole page on Xen and a part of one here. Containers that "
        "share a network namespace each show all of its traffic; on the host's own network the metric is absent.",
        f"{_REAL}test_pages_are_the_bytes_that_were_sent compares with the datagrams that a program sent and with "
        "the interface's own counters",
    ),
    Definition(
        "execution",
        "third number of schedstat of every task; the driver domain adds network and block softirqs",
        "Σ Δ timeslices / Δt",
        "The paper counts how often a domain is put on a CPU, here it is how often a task is: two tasks that run at "
        "the same time on two CPUs are two periods.",
        f"{_TASKS}test_a_sleeping_task_has_as_many_switches_as_timeslices_exactly compares with `status`",
    ),
    Definition(
        "pages_per_execution",
        "pages_exchanged and execution",
        "pages exchanged / executions",
        "As far as its two parts are; undefined, and absent, for a container that never ran in the time.",
        f"{_REAL}test_pages_are_the_bytes_that_were_sent checks its parts; tests/profiler/test_collectors.py: "
        "test_the_eight_metrics_of_a_known_second its quotient",
    ),
    Definition(
        "cpu",
        "`cpuacct.usage` (v1) or `usage_usec` of `cpu.stat` (v2); driver domain: irq and softirq ticks of /proc/stat "
        "and run time of the kernel's I/O threads (ksoftirqd, kblockd, jbd2, vhost)",
        "100 · Δ run time / Δt",
        "As in the paper for the container. Softirqs that run while one of its tasks is on the CPU are charged to the "
        "task on most kernels, and to the driver domain as well. Ticks resolve 10 ms.",
        f"{_REAL}test_cpu_is_what_the_process_itself_is_charged compares with utime and stime of the process",
    ),
    Definition(
        "waiting",
        "second number of schedstat (runnable and not running) of every task",
        "100 · Σ Δ wait time / Δt, at most what cpu leaves of 100 · CPUs",
        "On Xen a vCPU waits, here tasks do: tasks of one container that queue for each other count, which Xen does "
        "not see. The limit takes that away where the container is busy all the time, and leaves an upper bound "
        "where it is not. Time held back by a quota is not waiting (`throttled` says it).",
        f"{_REAL}test_two_busy_containers_wait_for_each_other_on_one_cpu and "
        "test_an_idle_container_blocks_and_does_not_wait",
    ),
    Definition(
        "block",
        "cpu and waiting; CPUs are those that cpuset and quota let it use at once, looked at every 15 s",
        "100 · CPUs − cpu − waiting, never below 0",
        "As in the paper it is everything that neither runs nor is runnable: blocked on I/O, idle, and here throttled. "
        "A lower bound where waiting is an upper one.",
        f"{_REAL}test_an_idle_container_blocks_and_does_not_wait; tests/profiler/test_backends.py: "
        "test_cpu_waiting_and_block_fill_the_virtual_cpus",
    ),
)


# Each holds the eight in the order of profiler.metrics.EIGHT.
DEFINITIONS: Mapping[str, tuple[Definition, ...]] = MappingProxyType({"xen": _XEN, "libvirt": _LIBVIRT, "lxc": _LXC})
TITLES: Mapping[str, str] = MappingProxyType({kind.backend: kind.title for kind in TRAITS.values()})


_INTRO = """\
# The eight metrics, formula by formula

<!-- Made by `python -m profiler.definitions`; change that file, not this page. -->

Cotenant describes what runs on a host with the eight system-level metrics of the NEIGHBOR paper (section 3.4), which
measured them on Xen. This page says where each comes from on each hypervisor, with which formula, how far that is
from the paper's definition, and how it was verified. `cotenant-profiler check` says which of them a host gives now.

- **Rates** are differences of cumulative counters between two readings, divided by the seconds between them on the
  monotonic clock. After a counter ran backwards, an instance came or went, or the clock stood, there is no sample.
- **Percentages** are of one CPU: 100 = one whole CPU, and cpu + waiting + block = 100 · vCPUs.
- **A page** is 4096 bytes, the grant-table page of Xen, whatever this host's pages are.
- **A metric that a host cannot give is absent, with a reason, and never zero.**
- **The driver domain** is Dom0 on Xen; on Linux hosts it is the part of the kernel and of the emulators that works for
  the instances' I/O. Its CPU time is charged to instances by the pages they exchanged, as by Cherkasova and Gardner
  (USENIX ATC 2005): where N pages were exchanged in all, an instance that exchanged n is charged n / N of it.

## What they are
"""

_NOT_THE_PAPERS = """\
## Which are not the paper's

A figure of these is no figure of the paper's, and the two are not compared but in order or direction:

- **`event` off Xen** is something else. A web server alone in a container of the lab (`datasets/lab-neighbor-loads`)
  had 3 to 5 times fewer a second than the paper's Table 3 prints for files up to 10 KB, and 13 to 29 times fewer from
  30 KB on, while it answered 9 to 17 times as many requests: 44 to 303 times fewer per request. Small files have most
  events here and fewest in the paper.
- **`event` on Xen** by interrupts misses what Dom0 sends, and joins what comes together. The paper does not say how it
  counted.
- **`pages_exchanged` on Xen** counts slots of both rings. The paper says of sending that no explicit memory page
  exchange is involved, for only the ownership of a page is transferred (section 3.1). Read so, slots of packets that
  guests send are no pages exchanged. It does not say what its own tool counted.
- **`pages_exchanged` off Xen** is bytes / 4096. A packet of 60 bytes is 0.015 pages here, and one there.
- **`pages_per_execution`** has both distances in it. The paper prints one value for a host, here each instance has its
  own.
- **`switch`, `execution` and `waiting` of containers** are of tasks, not of virtual CPUs.
- **`cpu` and `block` of a driver domain off Xen** are of the kernel's own work, which is done before programs and
  hardly waits.

As in the paper, so far as its words go: `cpu`, `waiting` and `block` of guests on Xen and under KVM, `execution` and
`switch` on Xen.
"""


def page_markdown() -> str:
    """The whole page docs/metrics.md."""
    meanings = [
        (f"`{metric.name}`", metric.unit, ", ".join(scope.replace("_", " ") for scope in metric.scopes), metric.help)
        for metric in EIGHT
    ]
    rows = [(metric, title, cell.source, cell.formula, cell.verified) for metric, title, cell in _cells()]
    distances = [(metric, title, cell.distance) for metric, title, cell in _cells()]
    parts = (
        _INTRO,
        _table([("metric", "unit", "of", "is"), *meanings]),
        "## Where they come from\n",
        _table([("metric", "hypervisor", "source", "formula", "verified how"), *rows]),
        _NOT_THE_PAPERS,
        "## How far they are from the paper\n",
        _table([("metric", "hypervisor", "distance from the paper's definition"), *distances]),
    )
    return "\n".join(parts).rstrip("\n") + "\n"


def _cells() -> Iterator[tuple[str, str, Definition]]:
    """Metric, name of the hypervisor and definition, metric by metric."""
    for metric in EIGHT:
        for key, title in TITLES.items():
            yield from ((f"`{metric.name}`", title, cell) for cell in DEFINITIONS[key] if cell.metric == metric.name)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    ruled = [rows[0], tuple("---" for _ in rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(_cell(text) for text in row)} |\n" for row in ruled)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page_markdown())


# Availability of the eight metrics on a host: the source of each, or why it is missing. No I/O.

AvailabilityState = Literal["given", "partly", "absent", "unknown"]

NO_INSTANCE = "no instance runs"
_NAMED = 3  # instances that a reason lists by name


@dataclass(frozen=True, slots=True)
class Availability:
    """One of the eight metrics on one host.

    `state` is that of its own scope (the host for event and switch, else the instances): given for all of them, partly
    = for some, absent, unknown where no instance runs. `driver_state` is that of the driver domain, "" where the metric
    has no such scope. `source` is empty where no hypervisor can be read. The reasons are empty where all is given.
    """

    metric: str
    unit: str
    scope: Scope
    source: str
    state: AvailabilityState
    reason: str = ""
    driver_state: Literal["given", "absent", ""] = ""
    driver_reason: str = ""


def availability(first: Counters, second: Counters, hypervisor: str) -> tuple[Availability, ...]:
    """What two readings of one host gave, in the order of the eight; `hypervisor` is a key of DEFINITIONS."""
    sources = {definition.metric: definition.source for definition in DEFINITIONS.get(hypervisor, ())}
    observed = _ObservedMetrics(second, collect(first, second))
    return tuple(_of_metric(metric, sources.get(metric.name, ""), observed) for metric in EIGHT)


def unavailable(reason: str) -> tuple[Availability, ...]:
    """All eight absent, where no hypervisor can be read."""
    return tuple(
        Availability(metric.name, metric.unit, metric.default_scope, "", "absent", reason, *_no_driver(metric, reason))
        for metric in EIGHT
    )


def _no_driver(metric: Metric, reason: str) -> tuple[Literal["absent", ""], str]:
    return ("absent", reason) if "driver_domain" in metric.scopes else ("", "")


def _of_metric(metric: Metric, source: str, observed: _ObservedMetrics) -> Availability:
    state, reason = observed.host(metric.name) if metric.default_scope == "host" else observed.instances(metric.name)
    named = (metric.name, metric.unit, metric.default_scope, source, state, reason)
    if "driver_domain" not in metric.scopes:
        return Availability(*named)
    return Availability(*named, *observed.driver(metric.name))


class _ObservedMetrics:
    """Samples and reasons of two readings, by scope, metric and instance."""

    def __init__(self, second: Counters, collected: Collected) -> None:
        self._instances = sorted(second.instances)
        self._absent = second.absent
        self._given = {(sample.scope, sample.metric, sample.instance) for sample in collected.samples}
        self._reasons = {(absence.metric, absence.instance): absence.reason for absence in collected.absences}
        self._drops = {drop.instance: f"this reading was dropped ({drop.reason})" for drop in collected.drops}

    def host(self, metric: str) -> tuple[AvailabilityState, str]:
        if ("host", metric, None) in self._given:
            return "given", ""
        return "absent", self._why(metric, None, "whole")

    def driver(self, metric: str) -> tuple[Literal["given", "absent"], str]:
        if ("driver_domain", metric, None) in self._given:
            return "given", ""
        explained = (metric, None) in self._reasons or "driver" in self._absent or None in self._drops
        if not explained and self.instances(metric)[0] != "given":  # as with pages (collectors/samples.py)
            return "absent", "it is summed over the instances, and not all of them give it"
        return "absent", self._why(metric, None, "driver")

    def instances(self, metric: str) -> tuple[AvailabilityState, str]:
        if not self._instances:
            return "unknown", NO_INSTANCE
        missing = [name for name in self._instances if ("instance", metric, name) not in self._given]
        if not missing:
            return "given", ""
        names_by_reason: dict[str, list[str]] = {}
        for name in missing:
            names_by_reason.setdefault(self._why(metric, name, "instances"), []).append(name)
        if len(names_by_reason) == 1 and len(missing) == len(self._instances):
            return "absent", next(iter(names_by_reason))
        reason = "; ".join(f"{reason} ({_some(names)})" for reason, names in names_by_reason.items())
        return ("absent" if len(missing) == len(self._instances) else "partly"), reason

    def _why(self, metric: str, instance: str | None, part: str) -> str:
        """The most specific reason known; `part` names the part of a reading that this metric needs."""
        known = (
            self._drops.get(None),  # nothing was subtracted at all: every other reason follows from that
            self._reasons.get((metric, instance)),
            self._drops.get(instance) if instance else None,
            self._absent.get(part),
        )
        return next((reason for reason in known if reason), "this host does not show it")


def _some(names: Sequence[str]) -> str:
    further = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {further} more" if further > 0 else "")
