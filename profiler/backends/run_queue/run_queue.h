// What the BPF program and the program that loads it share.

#define MOST_GROUPS 4096
#define MOST_PAIRS 16384
#define MOST_CPUS 1024
#define SUB_BUCKETS 8     // of each doubling: a bucket is at most 12.5 % wide
#define SHORTEST_LOG2 10  // ns; all below 1.024 us is bucket 0
#define BUCKETS 209       // the last begins at 2^36 ns, 69 s
#define NOT_KNOWN 0       // who ran meanwhile, where that is not known

// Waiting of the tasks of one control group; `delays` counts waits by their length without throttling.
struct group {
    unsigned long long waits, wait_ns, throttled_ns;
    unsigned int delays[BUCKETS];
};

struct pair {
    unsigned long long victim, runner;  // ids of control groups
};
