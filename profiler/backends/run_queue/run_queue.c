// Loads the BPF program and prints what it counted: one line of JSON per period on standard output, until it is told to
// end or nobody reads any more. A sentence on standard error and status 1 say why it cannot.
//
// --check only tries whether this kernel lets it. --cost also counts what the BPF program takes; beside --empty it does
// nothing, which shows what the counting itself takes. --verbose prints the verifier's log where the kernel refuses.

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "run_queue.h"

__asm__(".pushsection .rodata\n.balign 8\nobject_begin: .incbin \"" OBJECT "\"\nobject_end:\n.popsection\n");
extern const char object_begin[], object_end[];

static struct group group_values[MOST_GROUPS];
static unsigned long long group_ids[MOST_GROUPS], pair_values[MOST_PAIRS];
static struct pair pair_keys[MOST_PAIRS];
static volatile sig_atomic_t ended;
static int verbose;
static char complaint[512];  // the kernel's or libbpf's last one

static void end(int number)
{
    (void)number;
    ended = 1;
}

static int listen_to_libbpf(enum libbpf_print_level level, const char *format, va_list arguments)
{
    if (level == LIBBPF_WARN && verbose)
        return vfprintf(stderr, format, arguments);
    if (level == LIBBPF_WARN && !complaint[0])
        vsnprintf(complaint, sizeof complaint, format, arguments);
    return 0;
}

static int refuse(const char *what, int error)
{
    complaint[strcspn(complaint, "\n")] = 0;
    fprintf(stderr, "%s: %s%s%s\n", what, strerror(error < 0 ? -error : error), complaint[0] ? "; " : "", complaint);
    return 1;
}

// All entries of a map, which is then empty; returns their number, or -errno.
static int take_all(struct bpf_map *map, void *keys, void *values, unsigned int most)
{
    unsigned int place, count = most;
    int error = bpf_map_lookup_and_delete_batch(bpf_map__fd(map), NULL, &place, keys, values, &count, NULL);
    return error && errno != ENOENT ? -errno : (int)count;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_groups(int count)
{
    for (int i = 0; i < count; i++) {
        const struct group *group = &group_values[i];
        const char *comma = "";
        printf("%s{\"id\":%llu,\"waits\":%llu,\"wait_ns\":%llu,\"throttled_ns\":%llu,\"delays\":[", i ? "," : "",
               group_ids[i], group->waits, group->wait_ns, group->throttled_ns);
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            if (group->delays[bucket]) {
                printf("%s[%d,%u]", comma, bucket, group->delays[bucket]);
                comma = ",";
            }
        printf("]}");
    }
}

static void print_cost(struct bpf_object *object)
{
    unsigned long long run_ns = 0, runs = 0;
    struct bpf_program *program;
    bpf_object__for_each_program(program, object) {
        struct bpf_prog_info info = {0};
        unsigned int size = sizeof info;
        if (bpf_program__fd(program) >= 0 && !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size)) {
            run_ns += info.run_time_ns;
            runs += info.run_cnt;
        }
    }
    printf(",\"run_ns\":%llu,\"runs\":%llu", run_ns, runs);
}

// Every CPU's first two counters (struct cpu in run_queue.bpf.c), summed.
static void sum_cpus(const char *cpus, size_t size, int count, unsigned long long *switches, unsigned long long *lost)
{
    *switches = *lost = 0;
    for (int i = 0; i < count && i < MOST_CPUS; i++) {
        *switches += ((const unsigned long long *)(cpus + i * (size / MOST_CPUS)))[0];
        *lost += ((const unsigned long long *)(cpus + i * (size / MOST_CPUS)))[1];
    }
}

static int attach(struct bpf_object *object)
{
    struct bpf_program *program;
    bpf_object__for_each_program(program, object)
        if (!bpf_program__attach(program))
            return -errno;
    return 0;
}

// Whether the kernel says for how long a group was throttled (since 6.6, with CONFIG_CFS_BANDWIDTH).
static int tells_throttling(void)
{
    int found = 0;
    struct btf *kernel = btf__load_vmlinux_btf();
    int id = kernel ? btf__find_by_name_kind(kernel, "cfs_rq", BTF_KIND_STRUCT) : -1;
    const struct btf_type *type = id > 0 ? btf__type_by_id(kernel, id) : NULL;
    for (int i = 0; type && i < btf_vlen(type); i++)
        found |= !strcmp(btf__name_by_offset(kernel, btf_members(type)[i].name_off), "throttled_clock_self_time");
    btf__free(kernel);
    return found;
}

int main(int arguments, char **argument)
{
    double every = 1;
    int cost = 0, check = 0, empty = 0;
    for (int i = 1; i < arguments; i++) {
        if (!strcmp(argument[i], "--cost"))
            cost = 1;
        else if (!strcmp(argument[i], "--empty"))
            empty = 1;
        else if (!strcmp(argument[i], "--check"))
            check = 1;
        else if (!strcmp(argument[i], "--verbose"))
            verbose = 1;
        else if (strcmp(argument[i], "--every") || ++i == arguments || (every = atof(argument[i])) < 0.05 || every > 3600)
            return fprintf(stderr, "usage: cotenant-run-queue [--every SECONDS (0.05-3600)] [--check] [--cost] [--empty] [--verbose]\n"), 2;
    }
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_RESTART};  // a line is printed whole
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    libbpf_set_print(listen_to_libbpf);
    if (cost && bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
        return refuse("the kernel does not count what BPF programs cost", errno);
    struct bpf_object *object = bpf_object__open_mem(object_begin, object_end - object_begin, NULL);
    if (!object)
        return refuse("the BPF program cannot be read", errno);
    struct bpf_map *constants = bpf_object__find_map_by_name(object, ".rodata.empty");
    size_t room;
    int *flag = constants ? (int *)bpf_map__initial_value(constants, &room) : NULL;
    if (empty && flag)
        *flag = 1;
    int throttling = tells_throttling(), error = bpf_object__load(object);
    if (error)
        return refuse("the kernel refuses the BPF program", error);
    error = attach(object);
    if (error)
        return refuse("the kernel does not let the BPF program see the scheduler", error);
    if (check)
        return 0;
    struct bpf_map *groups = bpf_object__find_map_by_name(object, "groups");
    struct bpf_map *pairs = bpf_object__find_map_by_name(object, "pairs");
    struct bpf_map *state = bpf_object__find_map_by_name(object, ".bss");
    size_t size = state ? bpf_map__value_size(state) : 0;
    const char *cpus = state ? mmap(NULL, size, PROT_READ, MAP_SHARED, bpf_map__fd(state), 0) : MAP_FAILED;
    if (!groups || !pairs || cpus == MAP_FAILED)
        return refuse("the BPF program has other maps than expected", ENOENT);
    for (double before = seconds(), next = before + every; !ended; next += every) {
        double wait = next - seconds();
        if (wait > 0)
            nanosleep(&(struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)}, NULL);
        else
            next = seconds();
        int group_count = take_all(groups, group_ids, group_values, MOST_GROUPS);
        int pair_count = take_all(pairs, pair_keys, pair_values, MOST_PAIRS);
        if (group_count < 0 || pair_count < 0)
            return refuse("the kernel does not hand out what was counted", group_count < 0 ? group_count : pair_count);
        double now = seconds();
        unsigned long long switches, lost;
        sum_cpus(cpus, size, libbpf_num_possible_cpus(), &switches, &lost);
        printf("{\"seconds\":%.6f,\"throttling\":%s,\"switches\":%llu,\"lost\":%llu,\"groups\":[", now - before,
               throttling ? "true" : "false", switches, lost);
        before = now;
        print_groups(group_count);
        printf("],\"pairs\":[");
        for (int i = 0; i < pair_count; i++)
            printf("%s[%llu,%llu,%llu]", i ? "," : "", pair_keys[i].victim, pair_keys[i].runner, pair_values[i]);
        printf("]");
        if (cost)
            print_cost(object);
        printf("}\n");
        if (fflush(stdout))
            return 0;  // nobody reads
    }
    return 0;
}
