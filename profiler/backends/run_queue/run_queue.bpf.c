// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Who waits for a CPU, for how long, and who runs on it meanwhile: counted in the kernel, by control group.
//
// One hook does most of the work: sched_switch. The kernel itself notes when a task began to wait
// (sched_info.last_queued, the source of /proc/<pid>/schedstat), so that wake-ups need no hook of their own, and waiting
// here is the waiting there.
//
// Rules
// - A wait begins when a task becomes runnable, or is preempted, and ends when it is put on a CPU.
// - Whoever ran on that CPU meanwhile is who it waited for. Each CPU remembers its last SEGMENTS changes of group; what
//   is older is charged to NOT_KNOWN. The idle task is nobody: a CPU that is still waking up is no neighbour.
// - A group is the task's group in the hierarchy of the cpu controller, in version 1 and 2 of control groups alike.
// - Time for which a quota held the task's group, or one above it, is throttling and nobody's fault. Kernels before 6.6
//   do not say it; there it counts as waiting.
//
// Limits
// - Interrupts count for the task that they interrupt.
// - A wait is counted when it ends, in the window in which it ends.
// - Tasks of the root group (the host's own) are seen as runners, not as victims.
// - Whoever is moved to another CPU while it waits goes on with the same wait, and what it waited before is known, only
//   where the wait before was counted, too: nearly always but for groups with more waits than are counted one by one.
// - In a slice (16.8 ms) a CPU counts the first FULL_GROUP waits of each group, FULL_CPU altogether, and of the others a
//   random one of ONE_IN, for that many: this bounds the cost, and sums stay unbiased. Groups whose ids agree in the last
//   six bits share their FULL_GROUP.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "run_queue.h"

typedef unsigned int u32;
typedef unsigned long long u64;

#define ROOT 1       // id of the root of every hierarchy
#define IDLE 0       // the idle task runs in no group
#define SEGMENTS 64  // a power of two
#define INTERVALS 8  // of throttling that a run queue of a group remembers; a power of two
#define SLICE_SHIFT 24
#define BUDGETS 64   // a power of two
#define FULL_GROUP 16
#define FULL_CPU 64
#define ONE_IN 32    // a power of two

// The few fields of the kernel that are read; their places are found in the running kernel's BTF (CO-RE).
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
    u64 id;
};
struct cgroup {
    struct kernfs_node *kn;
};
struct cgroup_subsys_state {
    struct cgroup *cgroup;
};
struct task_group {
    struct cgroup_subsys_state css;
};
struct rq {
    u64 clock;
    int cpu;
};
struct cfs_rq {
    struct rq *rq;
    u64 throttled_clock_self, throttled_clock_self_time;  // since 6.6: since when, and for how long altogether
};
struct sched_entity {
    struct cfs_rq *cfs_rq;
};
struct sched_info {
    unsigned long pcount;
    u64 run_delay, last_queued;
};
struct task_struct {
    int pid;
    struct sched_entity se;
    struct task_group *sched_task_group;
    struct sched_info sched_info;
};
#pragma clang attribute pop

struct segment {
    u64 start, id;
};

struct budget {
    u32 slice, seen;
};

// When the run queue of a group on a CPU was throttled. `since`: it is now, as far as was seen; `total`: what the kernel
// had counted for it when it was looked at last.
struct throttling {
    u64 since, total;
    u32 next;
    u64 from[INTERVALS], until[INTERVALS];
};

// A wait of a task of group `victim`; `elsewhere` ns it waited where nobody knows, `held` ns of it it was throttled.
struct wait {
    u64 victim, since, now, weight, elsewhere, held;
};

struct cpu {
    u64 switches, lost;
    u32 head, random;
    struct segment segments[SEGMENTS];
    struct budget budget, budgets[BUDGETS];
    struct wait wait;  // the one that is being counted
    struct throttling throttling;
};

// What the kernel had counted for a task after its last wait that was counted here. `charged`: what it has waited since on
// CPUs from which it was moved, `held` ns of it throttled.
struct told {
    u64 run_delay, arrivals, charged, held;
};

struct cpu cpus[MOST_CPUS];
const volatile int empty SEC(".rodata.empty") = 0;  // set before loading: do nothing, to know what the kernel's counting of costs costs

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_GROUPS);
    __type(key, u64);
    __type(value, struct group);
} groups SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_PAIRS);
    __type(key, struct pair);
    __type(value, u64);
} pairs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, MOST_PAIRS);
    __type(key, u64);  // address of the run queue
    __type(value, struct throttling);
} throttlings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct told);
} told SEC(".maps");

static const struct group nothing;

// Functions that are not static are verified each for itself, which keeps the verifier's work small.

__attribute__((noinline)) u64 throttled_within(const struct throttling *throttling, u64 from, u64 until)
{
    u64 sum = 0;
    if (!throttling)
        return 0;
    for (int i = 0; i < INTERVALS; i++) {
        u64 begin = throttling->from[i], end = throttling->until[i];
        if (begin < from)
            begin = from;
        if (end > until)
            end = until;
        if (end > begin)
            sum += end - begin;
    }
    return sum;
}

// Note, when a task leaves its CPU, that its group is throttled. The kernel does not say when that ends, but how long it
// was, once it is over.
static __always_inline void note_throttling(struct cfs_rq *queue)
{
    struct throttling fresh = {}, *known;
    u64 key = (u64)queue, since;
    if (!bpf_core_field_exists(queue->throttled_clock_self_time))
        return;
    since = queue->throttled_clock_self;
    if (!since)
        return;
    known = bpf_map_lookup_elem(&throttlings, &key);
    if (known) {
        known->since = since;
        return;
    }
    fresh.since = since;
    fresh.total = queue->throttled_clock_self_time;
    bpf_map_update_elem(&throttlings, &key, &fresh, BPF_ANY);
}

// For how much of the wait its group was throttled; when that was is then in `cpu`.
static __always_inline u64 throttled_while(struct cpu *cpu, struct cfs_rq *queue, u64 since, u64 now)
{
    u64 key = (u64)queue, total = 0;
    if (bpf_core_field_exists(queue->throttled_clock_self_time))
        total = queue->throttled_clock_self_time;
    if (!total)
        return 0;
    struct throttling *known = bpf_map_lookup_elem(&throttlings, &key);
    if (!known)
        return 0;
    if (total > known->total) {
        u32 place = known->next++ & (INTERVALS - 1);
        u64 from = known->since ? known->since : since;  // not seen to begin: it was woken into it
        known->from[place] = from;
        known->until[place] = from + (total - known->total);
        known->total = total;
        known->since = 0;
    }
    cpu->throttling = *known;
    return throttled_within(known, since, now);
}

__attribute__((noinline)) u32 bucket_of(u64 ns)
{
    u32 log2 = 0;
    u64 rest = ns;
    if (!(ns >> SHORTEST_LOG2))
        return 0;
    for (u32 step = 32; step; step >>= 1)
        if (rest >> step) {
            rest >>= step;
            log2 += step;
        }
    u32 bucket = 1 + (log2 - SHORTEST_LOG2) * SUB_BUCKETS + ((ns >> (log2 - 3)) & (SUB_BUCKETS - 1));
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static __always_inline u32 seen_in(struct budget *budget, u32 slice)
{
    if (budget->slice != slice) {
        budget->slice = slice;
        budget->seen = 0;
    }
    return budget->seen;
}

// How many waits this one stands for; 0 = it is left out.
static __always_inline u32 weight_of(struct cpu *cpu, u64 id, u64 now)
{
    u32 slice = now >> SLICE_SHIFT;
    if (seen_in(&cpu->budgets[id & (BUDGETS - 1)], slice) < FULL_GROUP && seen_in(&cpu->budget, slice) < FULL_CPU) {
        cpu->budgets[id & (BUDGETS - 1)].seen++;
        cpu->budget.seen++;
        return 1;
    }
    u32 random = cpu->random ? cpu->random : (u32)now | 1;  // xorshift (Marsaglia 2003)
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    cpu->random = random;
    return random & (ONE_IN - 1) ? 0 : ONE_IN;
}

__attribute__((noinline)) int charge(u32 number, u64 victim, u64 runner, u64 ns)
{
    struct pair key = {victim, runner};
    u64 zero = 0;
    u64 *sum = bpf_map_lookup_elem(&pairs, &key);
    if (!sum) {
        bpf_map_update_elem(&pairs, &key, &zero, BPF_NOEXIST);
        sum = bpf_map_lookup_elem(&pairs, &key);
    }
    if (sum)
        __sync_fetch_and_add(sum, ns);
    else
        cpus[number & (MOST_CPUS - 1)].lost++;
    return 0;
}

// Charge the wait to those who ran on this CPU meanwhile, the last one first.
__attribute__((noinline)) int charge_runners(u32 number)
{
    struct cpu *cpu = &cpus[number & (MOST_CPUS - 1)];
    struct wait *wait = &cpu->wait;
    u64 since = wait->since, until = wait->now, unknown = wait->elsewhere;
    for (u32 i = 0; i < SEGMENTS && until > since; i++) {
        struct segment *segment = &cpu->segments[(cpu->head - i) & (SEGMENTS - 1)];
        u64 from = segment->start;
        if (!from)
            break;  // before this program was loaded
        if (from < since)
            from = since;
        if (segment->id != IDLE && until > from) {
            u64 held = wait->held ? throttled_within(&cpu->throttling, from, until) : 0;
            if (until - from > held)
                charge(number, wait->victim, segment->id, (until - from - held) * wait->weight);
        }
        until = from;
    }
    if (until > since) {
        u64 held = wait->held ? throttled_within(&cpu->throttling, since, until) : 0;
        if (until - since > held)
            unknown += until - since - held;
    }
    if (unknown)
        charge(number, wait->victim, NOT_KNOWN, unknown * wait->weight);
    return 0;
}

// What this task waited, before it was moved here while it waited, on other CPUs: charged already, throttled, altogether.
static __always_inline u64 waited_elsewhere(struct task_struct *task, u64 here, u64 *charged, u64 *held)
{
    u64 run_delay = task->sched_info.run_delay, arrivals = task->sched_info.pcount, before = 0;
    struct told *last = bpf_task_storage_get(&told, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!last)
        return 0;
    if (last->arrivals == arrivals && last->run_delay && run_delay > last->run_delay) {
        before = run_delay - last->run_delay;
        *charged = last->charged;
        *held = last->held;
    }
    last->run_delay = run_delay + here;
    last->arrivals = arrivals + 1;
    last->charged = last->held = 0;
    return before;
}

static __always_inline void account(u32 number, struct task_struct *task, u64 id, u64 since, u64 now, u32 weight)
{
    struct cpu *cpu = &cpus[number & (MOST_CPUS - 1)];
    u64 charged = 0, held_before = 0, before = waited_elsewhere(task, now - since, &charged, &held_before);
    u64 held = throttled_while(cpu, task->se.cfs_rq, since, now), waited = now - since + before;
    cpu->wait = (struct wait){id, since, now, weight, before > charged ? before - charged : 0, held};
    held += held_before;
    struct group *group = bpf_map_lookup_elem(&groups, &id);
    if (!group) {
        bpf_map_update_elem(&groups, &id, &nothing, BPF_NOEXIST);
        group = bpf_map_lookup_elem(&groups, &id);
    }
    if (!group) {
        cpu->lost++;
        return;
    }
    held = held < waited ? held : waited;
    u32 bucket = bucket_of(waited - held);
    __sync_fetch_and_add(&group->waits, weight);
    __sync_fetch_and_add(&group->wait_ns, (waited - held) * weight);
    if (held)
        __sync_fetch_and_add(&group->throttled_ns, held * weight);
    if (bucket < BUCKETS)
        __sync_fetch_and_add(&group->delays[bucket], weight);
    charge_runners(number);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *previous, struct task_struct *next)
{
    if (empty)
        return 0;
    struct rq *rq = next->se.cfs_rq->rq;
    u64 now = rq->clock;  // the clock of last_queued
    u32 number = rq->cpu;
    struct cpu *cpu = &cpus[number & (MOST_CPUS - 1)];
    u64 id = IDLE;
    cpu->switches++;
    if (next->pid) {
        id = next->sched_task_group->css.cgroup->kn->id;
        if (!id)
            id = ROOT;  // an autogroup of the kernel, which has no control group
        u64 since = next->sched_info.last_queued;
        if (id != ROOT && since && now >= since) {
            u32 weight = weight_of(cpu, id, now);
            if (weight)
                account(number, next, id, since, now, weight);
        }
    }
    struct segment *running = &cpu->segments[cpu->head & (SEGMENTS - 1)];
    if (running->id > ROOT)
        note_throttling(previous->se.cfs_rq);
    if (running->id != id || !running->start) {
        cpu->head++;
        running = &cpu->segments[cpu->head & (SEGMENTS - 1)];
        running->start = now;
        running->id = id;
    }
    return 0;
}

// Who is moved while it waits: what it waited here is charged to those who ran here. The lock of this CPU's queue is held.
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task)
{
    struct told *last = empty ? 0 : bpf_task_storage_get(&told, task, 0, 0);
    u64 run_delay = task->sched_info.run_delay;
    if (!last || last->arrivals != task->sched_info.pcount || run_delay <= last->run_delay + last->charged)
        return 0;  // it did not wait: most moves are of tasks that wake up
    u64 waited = run_delay - last->run_delay - last->charged;
    struct rq *rq = task->se.cfs_rq->rq;
    u64 now = rq->clock;
    u32 number = rq->cpu;
    struct cpu *cpu = &cpus[number & (MOST_CPUS - 1)];
    if (waited >= now)
        return 0;
    u64 held = throttled_while(cpu, task->se.cfs_rq, now - waited, now);
    cpu->wait = (struct wait){task->sched_task_group->css.cgroup->kn->id, now - waited, now, 1, 0, held};
    last->charged += waited;
    last->held += held;
    charge_runners(number);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";  // the kernel shows its structures to no other
