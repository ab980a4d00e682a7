"""The eight metrics on Xen, read in Dom0."""

from __future__ import annotations

from profiler.definitions.definition import Definition

_LAB = "tests/xen (make test-xen, real Xen with two paravirtual guests): "
_PLAIN = "tests/profiler/test_xen_trace.py: test_times_are_those_of_a_plain_reading of real traces"
_TRACE = "xentrace's records of run-state changes (0x21xxx), which carry the time stamp counter"

DEFINITIONS: tuple[Definition, ...] = (
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
