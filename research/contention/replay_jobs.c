/* One container's work: replays a list of jobs with some worker threads (vCPUs), by CPU time and not by wall time.
 *
 *     replay_jobs MODE WORKERS START END [FILE...]  < JOBS
 *
 * JOBS: pairs of doubles. MODE `open`: seconds after START at which the job arrives, and its CPU seconds; workers take
 * jobs in order, so that what cannot be served waits as backlog. MODE `closed`: seconds of thinking before the job, and
 * its CPU seconds; each worker walks the list from a place of its own, and around its end.
 * START, END: seconds on the monotonic clock. FILE: `cgroup.procs` of the groups that it joins before anything else.
 * MODE may end in `,EVERY,LENGTH`: it has turns of LENGTH seconds, the first at START and one more EVERY seconds. Between
 * turns its clock stands still and it sleeps, whatever it has left to do; seconds of JOBS are those of its turns. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static double (*jobs)[2];
static size_t job_count;
static atomic_size_t next_job;
static double start_s, end_s;
static double every_s, turn_s; /* 0: its turn never ends */
static int closed_loop;
static long workers;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Seconds of its turns that have passed at a time of the monotonic clock, and the clock at so many of them. */
static double turns_passed(double when) {
    if (turn_s <= 0) return when - start_s;
    double number = floor((when - start_s) / every_s);
    return number * turn_s + fmin(when - start_s - number * every_s, turn_s);
}

static double clock_at(double passed) {
    if (turn_s <= 0) return start_s + passed;
    double number = floor(passed / turn_s);
    return start_s + number * every_s + (passed - number * turn_s);
}

static void sleep_until(double when) {
    if (when > end_s) when = end_s;
    struct timespec at = {(time_t)when, (long)((when - floor(when)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void spin(double cpu_s) {
    double until = seconds(CLOCK_THREAD_CPUTIME_ID) + cpu_s;
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < until) {
        double now = turn_s > 0 ? seconds(CLOCK_MONOTONIC) : start_s;
        double number = turn_s > 0 ? floor((now - start_s) / every_s) : 0;
        if (turn_s > 0 && now - start_s - number * every_s >= turn_s) sleep_until(start_s + (number + 1) * every_s);
        if (now >= end_s) return;
    }
}

static void *work(void *number) {
    size_t mine = (size_t)number * (job_count / (size_t)workers);
    sleep_until(start_s);
    while (seconds(CLOCK_MONOTONIC) < end_s) {
        if (closed_loop) {
            double *job = jobs[mine++ % job_count];
            if (job[0] > 0) sleep_until(clock_at(turns_passed(seconds(CLOCK_MONOTONIC)) + job[0]));
            spin(job[1]);
            continue;
        }
        size_t taken = atomic_fetch_add(&next_job, 1);
        if (taken >= job_count) {
            sleep_until(end_s); /* a thread that is there to the end keeps its counts */
            break;
        }
        sleep_until(clock_at(jobs[taken][0]));
        spin(jobs[taken][1]);
    }
    return NULL;
}

static int join_group(const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return -1;
    int failed = fputs("0", file) < 0;
    return fclose(file) != 0 || failed ? -1 : 0;
}

int main(int count, char **argument) {
    if (count < 5) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int file = 5; file < count; file++)
        if (join_group(argument[file]) != 0) {
            perror(argument[file]);
            return 1;
        }
    closed_loop = strncmp(argument[1], "closed", 6) == 0;
    const char *turns = strchr(argument[1], ',');
    if (turns != NULL && (sscanf(turns, ",%lf,%lf", &every_s, &turn_s) != 2 || turn_s <= 0 || every_s < turn_s)) return 2;
    workers = strtol(argument[2], NULL, 10);
    start_s = strtod(argument[3], NULL);
    end_s = strtod(argument[4], NULL);
    size_t room = 1024;
    jobs = malloc(room * sizeof *jobs);
    while (jobs != NULL && fread(jobs[job_count], sizeof *jobs, 1, stdin) == 1)
        if (++job_count == room) jobs = realloc(jobs, (room *= 2) * sizeof *jobs);
    if (jobs == NULL || job_count == 0 || workers < 1 || workers > 64) return 2;
    pthread_t thread;
    for (long number = 1; number < workers; number++)
        if (pthread_create(&thread, NULL, work, (void *)number) != 0) return 1;
    work((void *)0);
    sleep_until(end_s);
    return 0;
}
