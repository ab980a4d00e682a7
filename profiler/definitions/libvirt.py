"""The eight metrics on KVM and QEMU guests under libvirt."""

from __future__ import annotations

from profiler.definitions.definition import Definition

_LAB = "tests/libvirt (make test-libvirt, two real guests under TCG): "

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "event",
        "KVM's debugfs sums `exits` and `irq_injections` below /sys/kernel/debug/kvm (root); where they are missing or "
        "may not be read, voluntary switches in `status` of all threads of QEMU",
        "Δ(exits + irq_injections) / Δt, else Δ voluntary switches / Δt",
        "KVM has no event channel. A notification of a guest is an exit and one to a guest an injected interrupt, but "
        "exits also come from timers and page faults, so there are more of them. Wakes stand in under TCG: each ends a "
        "sleep on an eventfd, a signal, a timer or a lock of QEMU; several notifications may share one. The two are "
        "not comparable, so a backend keeps to the one that its first reading found.",
        f"{_LAB}test_load_raises_events_and_the_driver_domains_cpu; the debugfs sums on files made after the kernel's "
        "source only, for no KVM was at hand",
    ),
    Definition(
        "switch",
        "third number of schedstat of all vCPU threads, of QEMU's other threads and of the kernel's I/O threads",
        "Σ Δ timeslices / Δt",
        "The paper counts switches of the VMM among VMs. Here every switch of such a thread counts, also between two "
        "threads of one guest's QEMU, and not the host's other processes.",
        f"{_LAB}test_executions_and_switches_are_the_switches_that_the_kernel_counts compares it with voluntary plus "
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
        f"{_LAB}test_pages_are_the_bytes_of_the_tap compares with the kernel's counters of the tap, "
        "test_what_a_guest_writes_to_its_disk_counts_as_pages with what the guest wrote",
    ),
    Definition(
        "execution",
        "third number of schedstat of each vCPU thread; driver domain: of QEMU's other threads and the kernel's I/O "
        "threads, and the host's network and block softirqs",
        "Σ Δ timeslices / Δt",
        "As in the paper: how often a vCPU is put on a CPU. With halt polling a vCPU that sleeps for under 0.2 ms "
        "stays on its CPU, and a period on Xen would have ended. Under TCG the thread also stops for QEMU's own lock.",
        f"{_LAB}test_executions_and_switches_are_the_switches_that_the_kernel_counts",
    ),
    Definition(
        "pages_per_execution",
        "the two above",
        "pages_exchanged / execution",
        "As its parts.",
        f"{_LAB}test_pages_are_the_bytes_of_the_tap",
    ),
    Definition(
        "cpu",
        "first number of schedstat of each vCPU thread; driver domain: of QEMU's other threads (main loop, I/O "
        "threads, vhost) and the kernel's I/O threads, and irq and softirq ticks of the host",
        "Σ Δ run time / Δt, 100 = one whole CPU",
        "The guest's own time and what the host does in its vCPU threads for it: exits, halt polling, and under TCG "
        "the emulation of devices that the vCPU touches. The driver domain has as many virtual CPUs as the host "
        "has, for its threads run on any.",
        f"{_LAB}test_cpu_is_what_the_kernel_accounts_to_the_vcpu_threads compares with utime + stime in `stat`, "
        "test_guests_and_their_driver_domain_together_are_the_qemu_processes with those of the whole processes",
    ),
    Definition(
        "waiting",
        "second number of schedstat of each vCPU thread; driver domain: of the same threads as its cpu",
        "Σ Δ time runnable and not running / Δt, at most 100 · vcpus − cpu",
        "As in the paper for a guest: its vCPUs are what waits. Time that a vCPU is throttled by its quota counts as "
        "blocked, not as waiting. What a guest sees as steal is this, and is not read inside it.",
        f"{_LAB}test_waiting_rises_when_two_busy_vcpus_share_one_cpu: alone below 15 %, together 35-60 %",
    ),
    Definition(
        "block",
        "what cpu and waiting leave",
        "100 · vcpus − cpu − waiting, never below 0",
        "As in the paper it holds blocked on I/O, and idle.",
        f"{_LAB}test_idle_guests_use_no_cpu_and_are_blocked",
    ),
)
