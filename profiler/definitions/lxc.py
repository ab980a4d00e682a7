"""The eight metrics on containers of any kind on Linux, control groups of version 1 and 2."""

from __future__ import annotations

from profiler.definitions.definition import Definition

_REAL = "tests/profiler/test_containers_real.py: "
_TASKS = "tests/profiler/test_linux_tasks.py: "

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "event",
        "line `softirq` of /proc/stat: NET_TX, NET_RX and BLOCK of all CPUs",
        "Δ softirqs / Δt",
        "Linux has no event channel. On Xen an event tells a domain of I/O, here a softirq does that work; several "
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
