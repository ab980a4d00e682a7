/* What models/physics/cpu_contention.py says in Python, function by function and in the same order of operations, for
 * predictions of many hosts. Its comments and sources hold here, too; tests compare both. Sets of CPUs are kept as lists
 * of who may not leave them. Only `share_hosts` is called from outside; it returns 0, or -1 without memory. Beside it
 * `normal_below` is the distribution function of the standard normal distribution. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSED, OPEN, HOG };
enum { BELOW = 6, ABOVE = 10, NODES = BELOW + ABOVE, POINTS = 2000, HALVINGS = 30 };
static const double NEVER = 30.0, FREE = 1e9, MOST_TILT = 1e6, ALMOST = 1 - 1e-9, LEAST_CPUS = 1e-3;
static const double MOST_BUSY = 0.999, LATE = 0.95 + 1e-9, CLOSE = 1e-9;

typedef struct { double *vcpus, *demand, *weight, *brief, *run, *want, *fair, *lacked; int64_t *loop; } Crowd;
typedef struct {
    Crowd some;
    double *size, *asks, *of_hogs, *wanted, *got, *lacking;
    double *now, *ran, *want, *lacked, *owed, *late_run, *late_want, *moments, *factors;
    int64_t *kind, *member, *first;
    uint64_t *mask;
    int64_t members, room_for;
    double *room;
} Scratch;

static double least(double one, double other) { return other < one ? other : one; }
static double most_of(double one, double other) { return other > one ? other : one; }

static void closed_busy(double vcpus, double demand, double tilt, double most, double *busy, double *speed)
{
    double each = least(demand / vcpus, MOST_BUSY), asks = tilt * each / (1 - each);
    *speed = 1.0;
    *busy = asks / (asks + 1);
    if (most >= vcpus || most >= 1 + (vcpus - 1) * *busy)
        return;
    double others = asks * (vcpus - 1), half = 0.5 * (asks + most - others);
    *busy = asks / (half + sqrt(half * half + others * asks));
    *speed = most / (1 + (vcpus - 1) * *busy);
}

static double served(int64_t loop, double vcpus, double demand, double weight, double tilt, double level, double *grows)
{
    double most = least(vcpus, level * weight), busy, speed;
    *grows = 0.0;
    if (loop == HOG)
        return most;
    if (loop == OPEN) {
        double asks = tilt * demand;
        if (asks >= most)
            return most;
        return *grows = asks;
    }
    closed_busy(vcpus, demand, tilt, most, &busy, &speed);
    double got = vcpus * busy * speed;
    *grows = got * (1 - busy) / (speed < 1 ? 1 + (vcpus - 1) * busy * busy : 1);
    return least(got, most);
}

typedef struct { double wants, gets, rises, falls, lacks; } State;

static State state(int64_t loop, double vcpus, double demand, double weight, double tilt, double level)
{
    double most = least(vcpus, level * weight);
    int held_back = most < vcpus * (1 - 1e-12);
    if (loop == HOG)
        return (State){vcpus, most, 0.0, 0.0, held_back ? 1.0 : 0.0};
    if (loop == OPEN) {
        double asks = tilt * demand, wants, full, lacks = 0.0;
        if (asks >= most * ALMOST)
            return (State){vcpus, most, 0.0, most_of(most - demand, 0.0), held_back ? 1.0 : 0.0};
        double load = asks / most;
        if (!held_back) {
            wants = asks;
            full = pow(load, sqrt(2 * (vcpus + 1)) - 1);
        } else if (most >= 1) {
            double queue = pow(load, sqrt(2 * (most + 1)) - 1), rest = pow(load, vcpus - most);
            wants = asks + queue * load * (1 - rest) / (1 - load);
            full = queue * rest;
            lacks = queue * pow(load, floor(most) + 1 - most);
        } else {
            full = pow(load, vcpus);
            wants = load * (1 - full) / (1 - load);
            lacks = load;
        }
        return (State){wants, asks, demand * (1 - full), most_of(asks - demand * full, 0.0), lacks};
    }
    double busy, speed, lacks = 0.0;
    closed_busy(vcpus, demand, tilt, most, &busy, &speed);
    double each = least(demand / vcpus, MOST_BUSY), wants = vcpus * busy, got = least(wants * speed, most);
    if (held_back && most < 1)
        lacks = 1 - pow(1 - busy, vcpus);
    else if (held_back)
        lacks = 0.5 * erfc((floor(most) + 0.5 - wants) / sqrt(2 * most_of(wants * (1 - busy), 1e-9)));
    return (State){wants, got, (vcpus - wants) * each / (1 - each), got, lacks};
}

static double fair_level(double cpus, const double *asked, const double *weight, int64_t count)
{
    double low = 0.0, high = 0.0;
    for (int64_t at = 0; at < count; at++)
        high = most_of(high, asked[at] / weight[at]);
    for (int step = 0; step < 44; step++) {
        double middle = 0.5 * (low + high), total = 0.0;
        for (int64_t at = 0; at < count; at++)
            total += least(asked[at], middle * weight[at]);
        if (total > cpus)
            high = middle;
        else
            low = middle;
    }
    double left = cpus, together = 0.0;
    for (int64_t at = 0; at < count; at++) {
        if (asked[at] <= low * weight[at])
            left -= asked[at];
        else
            together += weight[at];
    }
    return together > 0 ? left / together : high;
}

static double between(double at, const double *places, const double *values, int first)
{
    if (at <= places[first])
        return values[first];
    for (int right = first + 1; right < NODES; right++)
        if (at <= places[right]) {
            double gap = places[right] - places[right - 1];
            if (gap < 1e-12)
                return values[right];
            double part = (at - places[right - 1]) / gap;
            return values[right - 1] * (1 - part) + values[right] * part;
        }
    return values[NODES - 1];
}

static double tilt_at_full(double cpus, double hogs, const Crowd *all, int64_t count)
{
    double low = 1e-4, high = 2 * MOST_TILT, tilt = 1.0;
    while (high / low > 1 + 1e-7 && low < MOST_TILT) {
        double total = hogs, slope = 0.0, grows;
        for (int64_t at = 0; at < count; at++)
            if (all->loop[at] != HOG) {
                total += served(all->loop[at], all->vcpus[at], all->demand[at], all->brief[at], tilt, FREE, &grows);
                slope += grows;
            }
        if (fabs(cpus - total) <= CLOSE * cpus)
            return tilt;
        if (total > cpus)
            high = tilt;
        else
            low = tilt;
        double next = tilt * exp(most_of(least((cpus - total) / most_of(slope, 1e-9), 2.0), -2.0));
        tilt = low < next && next < high ? next : sqrt(low * high);
    }
    return high;
}

static double tilt_at_level(double cpus, double level, double tilt, const Crowd *all, int64_t count)
{
    for (int round = 0; round < 30; round++) {
        double total = 0.0, slope = 0.0, grows;
        for (int64_t at = 0; at < count; at++) {
            total += served(all->loop[at], all->vcpus[at], all->demand[at], all->brief[at], tilt, level, &grows);
            slope += grows;
        }
        if (total >= cpus * (1 - 1e-7) || tilt > MOST_TILT)
            break;
        tilt *= exp(least((cpus - total) / most_of(slope, 1e-9), 1.0));
    }
    return tilt;
}

static double steady_state(double cpus, double hogs, const double *ready, const double *up, const double *down, int first,
                           double *part)
{
    double chance[POINTS + 2], start = most_of(floor(ready[first] - hogs + 1e-6), 0.0) + hogs, highest = 0.0;
    double wide = ready[NODES - 1] - start + 0.5;
    int64_t points = (int64_t)wide + 1;
    if (points < 1)
        points = 1;
    double stride = most_of(1.0, points / (double)POINTS);
    int64_t length = (int64_t)(points / stride) + 1, last = 0;
    chance[0] = 0.0;
    for (int64_t point = 1; point < length; point++) {
        if (stride * point > points - 1 + 1e-9)
            break;
        double middle = start + stride * (point - 0.5);
        double rise = log(most_of(between(middle - 0.5, ready, up, first), 1e-12));
        double fall = log(most_of(between(middle + 0.5, ready, down, first), 1e-12));
        chance[point] = chance[point - 1] + stride * (rise - fall);
        last = point;
        highest = most_of(highest, chance[point]);
        if (chance[point] < highest - NEVER)
            break;
    }
    double total = 0.0, crowded = 0.0, most = most_of(cpus, hogs);
    int left = first;
    for (int64_t point = 0; point <= last; point++) {
        double here = exp(chance[point] - highest), wanted = start + stride * point;
        total += here;
        if (wanted > most + 1e-9)
            crowded += here;
        while (left < NODES - 2 && ready[left + 1] < wanted)
            left++;
        double gap = ready[left + 1] - ready[left];
        double right = gap > 1e-12 ? least(most_of((wanted - ready[left]) / gap, 0.0), 1.0) : 0.0;
        part[left] += here * (1 - right);
        part[left + 1] += here * right;
    }
    for (int node = 0; node < NODES; node++)
        part[node] /= total;
    return crowded / total;
}

static void average(const double *part, const double *values, double *found, int64_t count)
{
    for (int64_t at = 0; at < count; at++) {
        found[at] = 0.0;
        for (int node = 0; node < NODES; node++)
            found[at] += part[node] * values[node * count + at];
    }
}

static double conserve(double cpus, Crowd *all, int64_t count)
{
    double others = 0.0;
    for (int64_t at = 0; at < count; at++) {
        if (all->loop[at] == HOG || all->want[at] <= 0)
            continue;
        double share = all->run[at] / all->want[at];
        if (all->loop[at] == OPEN) {
            all->run[at] = all->demand[at];
        } else {
            double each = least(all->demand[at] / all->vcpus[at], MOST_BUSY), asks = each / (1 - each);
            all->run[at] = all->vcpus[at] * share * asks / (asks + share);
        }
        all->want[at] = all->run[at] / share;
        others += all->run[at];
    }
    return most_of(cpus - others, 0.0);
}

static double bursts_meet(double cpus, Crowd *all, int64_t count, Scratch *scratch)
{
    double hogs = 0.0, usual = 0.0, top = 0.0, tilt = 1e-4, tilts[NODES] = {0}, levels[NODES] = {0};
    double *of_hogs = scratch->of_hogs;
    int first = BELOW;
    for (int64_t at = 0; at < count; at++) {
        of_hogs[at] = 0.0;
        if (all->loop[at] == HOG) {
            hogs += all->vcpus[at];
            of_hogs[at] = all->vcpus[at];
        } else {
            usual += all->demand[at];
        }
        top = most_of(top, all->vcpus[at] / all->brief[at]);
    }
    if (hogs < cpus) {
        first = 0;
        tilt = tilt_at_full(cpus, hogs, all, count);
        double reach = (cpus - hogs - usual + 6 * sqrt(usual) + 2) / (cpus - hogs);
        reach = most_of(least(1 - 1e-3, reach), 0.02);
        for (int node = 0; node < BELOW; node++) {
            tilts[node] = tilt * (1 - reach * (1 - node / (BELOW - 1.0)));
            levels[node] = FREE;
        }
    } else {
        top = fair_level(cpus, of_hogs, all->brief, count);
    }
    double high = log(top), low = log(fair_level(cpus, all->vcpus, all->brief, count));
    for (int step = 0; step < ABOVE; step++) {
        double along = (step + 0.02) / (ABOVE - 0.96), level = exp(high * (1 - along) + low * along);
        tilt = tilt_at_level(cpus, level, tilt, all, count);
        tilts[BELOW + step] = tilt;
        levels[BELOW + step] = level;
    }
    memset(scratch->wanted, 0, sizeof(double) * NODES * count);
    memset(scratch->got, 0, sizeof(double) * NODES * count);
    memset(scratch->lacking, 0, sizeof(double) * NODES * count);
    double ready[NODES] = {0}, up[NODES] = {0}, down[NODES] = {0}, part[NODES] = {0};
    for (int node = first; node < NODES; node++) {
        for (int64_t at = 0; at < count; at++) {
            State now = state(all->loop[at], all->vcpus[at], all->demand[at], all->brief[at], tilts[node], levels[node]);
            scratch->wanted[node * count + at] = now.wants;
            scratch->got[node * count + at] = now.gets;
            scratch->lacking[node * count + at] = now.lacks;
            ready[node] += now.wants;
            up[node] += now.rises;
            down[node] += now.falls;
        }
        if (node > first)
            ready[node] = most_of(ready[node], ready[node - 1]);
    }
    double over = steady_state(cpus, hogs, ready, up, down, first, part);
    average(part, scratch->got, all->run, count);
    average(part, scratch->wanted, all->want, count);
    average(part, scratch->lacking, all->lacked, count);
    double left = conserve(cpus, all, count);
    if (hogs >= cpus) {
        double level = fair_level(left, of_hogs, all->brief, count);
        for (int64_t at = 0; at < count; at++)
            if (of_hogs[at] > 0) {
                all->run[at] = least(of_hogs[at], level * all->brief[at]);
                all->want[at] = of_hogs[at];
            }
    }
    return over;
}

static double unhindered(const double *vcpus, const double *demand, const int64_t *loop, int64_t count, double *run,
                         double *want, double *lacked, double *fair)
{
    double total = 0.0;
    for (int64_t at = 0; at < count; at++) {
        double asked = loop[at] == HOG ? vcpus[at] : demand[at];
        run[at] = want[at] = fair[at] = asked;
        lacked[at] = 0.0;
        total += asked;
    }
    return total;
}

static void go_astray(double cpus, Crowd *all, int64_t count, double astray)
{
    double heaviest = 0.0, weigh = 0.0;
    for (int64_t at = 0; at < count; at++)
        if (all->loop[at] == HOG) {
            heaviest = most_of(heaviest, all->brief[at]);
            weigh += all->vcpus[at] * all->brief[at];
        }
    double behind = most_of(weigh / cpus - heaviest, 0.0);
    for (int64_t at = 0; at < count; at++)
        if (all->loop[at] != HOG)
            all->want[at] += astray * most_of(all->want[at] - all->run[at] * (1 + behind / all->brief[at]), 0.0);
}

/* The CPUs per weight at which `cpus` are used up, where closed loops ask for less the slower they are. */
static double level_of_backlog(double cpus, const Crowd *all, int64_t count, double low)
{
    double high = low, total = 0.0, grows;
    for (int64_t at = 0; at < count; at++)
        high = most_of(high, all->vcpus[at] / all->weight[at]);
    for (int step = 0; step < HALVINGS; step++) {
        double middle = 0.5 * (low + high);
        total = 0.0;
        for (int64_t at = 0; at < count; at++)
            total += served(all->loop[at], all->vcpus[at], all->demand[at], all->weight[at], 1.0, middle, &grows);
        if (total > cpus)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static double share_cpus(double cpus, Crowd *all, int64_t count, double astray, Scratch *scratch)
{
    cpus = most_of(cpus, LEAST_CPUS);
    double most = 0.0, hogs = 0.0;
    for (int64_t at = 0; at < count; at++)
        most += all->vcpus[at];
    double total = unhindered(all->vcpus, all->demand, all->loop, count, all->run, all->want, all->lacked, all->fair);
    if (most <= cpus + 1e-9 || total + 6 * sqrt(total) + 2 < cpus)
        return 0.0;
    if (total > cpus) {
        double level = fair_level(cpus, all->fair, all->weight, count);
        int yields = 0, piles_up = 0;
        for (int64_t at = 0; at < count; at++) {
            all->fair[at] = least(all->fair[at], level * all->weight[at]);
            yields |= all->loop[at] == CLOSED;
            piles_up |= all->loop[at] == OPEN && all->demand[at] >= level * all->weight[at] * ALMOST;
        }
        if (yields && piles_up)
            level = level_of_backlog(cpus, all, count, level);
        for (int64_t at = 0; at < count; at++) {
            double near = all->demand[at] / (level * all->weight[at]);
            if (all->loop[at] == OPEN && most_of(near, all->demand[at] / all->vcpus[at]) >= ALMOST)
                all->loop[at] = HOG;
            else if (all->loop[at] == OPEN && all->brief[at] != all->weight[at])
                all->brief[at] *= pow(all->weight[at] / all->brief[at], near * near);
        }
    }
    for (int64_t at = 0; at < count; at++)
        if (all->loop[at] == HOG) {
            all->brief[at] = all->weight[at];
            hogs += all->vcpus[at];
        }
    double over = bursts_meet(cpus, all, count, scratch);
    if (cpus >= 2)
        go_astray(cpus, all, count, astray * (1 - over));
    return hogs > cpus + 1e-9 ? 1.0 : over;
}

typedef struct { double value; int64_t at; } Keyed;

static int by_value(const void *one, const void *other)
{
    const Keyed *left = one, *right = other;
    if (left->value != right->value)
        return left->value < right->value ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

/* Where values stand, from the least to the greatest, equal ones in their order. */
static void ordered(const double *values, int64_t count, Keyed *keyed)
{
    for (int64_t at = 0; at < count; at++)
        keyed[at] = (Keyed){values[at], at};
    qsort(keyed, (size_t)count, sizeof(Keyed), by_value);
}

static int add_member(Scratch *scratch, int64_t one)
{
    if (scratch->members == scratch->room_for) {
        int64_t more = 2 * scratch->room_for + 1024;
        int64_t *grown = realloc(scratch->member, sizeof(int64_t) * (size_t)more);
        if (!grown)
            return -1;
        scratch->member = grown;
        scratch->room_for = more;
    }
    scratch->member[scratch->members++] = one;
    return 0;
}

/* Fill in each set's `room`, and its members from `first` on; returns how many sets there are, -1 = no memory. */
static int64_t sets_of(double cpus, const uint8_t *allowed, int64_t pcpus, const double *sizes, int64_t count,
                       Keyed *keyed, Scratch *scratch)
{
    int64_t words = (pcpus + 63) / 64, pinned = 0, kept = 0;
    double whole = least(cpus, (double)pcpus);
    scratch->members = 0;
    for (int64_t at = 0; at < count; at++)
        pinned += sizes[at] < whole;
    if (pinned) {
        memset(scratch->mask, 0, sizeof(uint64_t) * (size_t)(words * count));
        for (int64_t at = 0; at < count; at++)
            for (int64_t cpu = 0; cpu < pcpus; cpu++)
                if (allowed[at * pcpus + cpu])
                    scratch->mask[at * words + cpu / 64] |= (uint64_t)1 << cpu % 64;
        ordered(sizes, count, keyed);
    }
    for (int64_t step = 0; step < pinned; step++) {
        int64_t one = keyed[step].at, before = scratch->members;
        int new = 1;
        for (int64_t other = 0; other < count && new; other++) {
            if (sizes[other] > sizes[one])
                continue;
            uint64_t outside = 0;
            for (int64_t word = 0; word < words && !outside; word++)
                outside = scratch->mask[other * words + word] & ~scratch->mask[one * words + word];
            if (outside)
                continue;
            if (other < one && sizes[other] == sizes[one])
                new = 0; /* their set was found before */
            else if (add_member(scratch, other))
                return -1;
        }
        if (!new) {
            scratch->members = before;
            continue;
        }
        scratch->first[kept] = before;
        scratch->room[kept++] = sizes[one];
    }
    scratch->first[kept] = scratch->members;
    scratch->room[kept++] = cpus;
    for (int64_t at = 0; at < count; at++)
        if (add_member(scratch, at))
            return -1;
    scratch->first[kept] = scratch->members;
    return kept;
}

typedef struct { const double *vcpus, *weight, *brief; const int64_t *loop; double astray; } Host;

static double share_set(double cpus, const int64_t *member, int64_t count, const Host *host, Scratch *scratch)
{
    Crowd *some = &scratch->some;
    for (int64_t place = 0; place < count; place++) {
        int64_t one = member[place];
        some->vcpus[place] = scratch->size[one];
        some->demand[place] = scratch->asks[one];
        some->loop[place] = scratch->kind[one];
        some->weight[place] = host->weight[one];
        some->brief[place] = host->brief[one];
    }
    double crowded = share_cpus(cpus, some, count, host->astray, scratch);
    for (int64_t place = 0; place < count; place++) {
        int64_t one = member[place];
        if (some->run[place] * scratch->want[one] < scratch->ran[one] * some->want[place]) {
            scratch->ran[one] = some->run[place];
            scratch->want[one] = some->want[place];
        }
        scratch->lacked[one] = most_of(scratch->lacked[one], some->lacked[place]);
        scratch->owed[one] = least(scratch->owed[one], some->fair[place]);
        double asked = scratch->kind[one] == HOG ? scratch->size[one] : scratch->asks[one];
        if (some->fair[place] < asked * ALMOST) {
            scratch->size[one] = scratch->asks[one] = most_of(some->fair[place], 1e-9);
            scratch->kind[one] = HOG;
        }
    }
    return crowded;
}

static double share_host(int64_t sets, const Host *host, int64_t count, Scratch *scratch)
{
    double crowded = 0.0;
    memcpy(scratch->asks, scratch->now, sizeof(double) * (size_t)count);
    memcpy(scratch->kind, host->loop, sizeof(int64_t) * (size_t)count);
    memcpy(scratch->size, host->vcpus, sizeof(double) * (size_t)count);
    unhindered(host->vcpus, scratch->now, host->loop, count, scratch->ran, scratch->want, scratch->lacked, scratch->owed);
    for (int64_t one = 0; one < sets; one++) {
        const int64_t *member = scratch->member + scratch->first[one];
        crowded = share_set(scratch->room[one], member, scratch->first[one + 1] - scratch->first[one], host, scratch);
    }
    return crowded;
}

static void moved(const double *moves, int64_t consumers, const double *moments, const double *chances, int64_t count,
                  double *factors)
{
    for (int64_t at = 0; at < consumers; at++) {
        double mean = 0.0;
        for (int64_t moment = 0; moment < count; moment++) {
            factors[moment * consumers + at] = exp(moves[at] * moments[moment]);
            mean += chances[moment] * factors[moment * consumers + at];
        }
        for (int64_t moment = 0; moment < count; moment++)
            factors[moment * consumers + at] /= mean;
    }
}

/* Fill in scratch->factors; returns how many moments there are. */
static int64_t moment_factors(const double *usual, const double *moves, const double *day, int64_t parts,
                              int64_t consumers, const double *moments, const double *chances, int64_t count,
                              Keyed *keyed, Scratch *scratch)
{
    double *factors = scratch->factors, *beside = scratch->moments, *together = scratch->moments + count * consumers;
    int vary = 0, move = 0;
    for (int64_t at = 0; at < consumers; at++) {
        move = move || moves[at] != 0;
        for (int64_t part = 1; part < parts; part++)
            vary = vary || day[at * parts + part] != day[at * parts];
    }
    if (!vary && !move) {
        for (int64_t at = 0; at < consumers; at++)
            factors[at] = 1.0;
        return 1;
    }
    moved(moves, consumers, moments, chances, count, vary ? beside : factors);
    if (!vary)
        return count;
    memset(together, 0, sizeof(double) * (size_t)(parts * count));
    memset(factors, 0, sizeof(double) * (size_t)(count * consumers));
    for (int64_t at = 0; at < consumers; at++)
        for (int64_t part = 0; part < parts; part++) {
            double now = usual[at] * day[at * parts + part];
            for (int64_t moment = 0; moment < count; moment++)
                together[part * count + moment] += now * beside[moment * consumers + at];
        }
    int64_t into = 0;
    double left = chances[0];
    ordered(together, parts * count, keyed);
    for (int64_t step = 0; step < parts * count; step++) {
        int64_t part = keyed[step].at / count, moment = keyed[step].at % count;
        double rest = chances[moment] / parts;
        while (rest > 0) {
            double taken = into == count - 1 ? rest : least(rest, left);
            for (int64_t at = 0; at < consumers; at++)
                factors[into * consumers + at] +=
                    taken / chances[into] * (day[at * parts + part] * beside[moment * consumers + at]);
            rest -= taken;
            left -= taken;
            if (left <= 0 && into < count - 1) {
                into++;
                left = chances[into];
            }
        }
    }
    return count;
}

/* All arrays of a host of at most `most` consumers in one piece of memory; NULL = there is none. */
static void *prepare(Scratch *scratch, int64_t most, int64_t words, int64_t parts, int64_t count)
{
    int64_t doubles = most * (8 + 3 + 3 * NODES + 7 + 2 * count) + parts * count + (most + 1);
    int64_t whole = most * 2 + (most + 2) + words * most;
    char *memory = malloc(sizeof(double) * (size_t)doubles + sizeof(int64_t) * (size_t)whole);
    double *next = (double *)memory;
    if (!memory)
        return NULL;
#define TAKE(name, size) scratch->name = next, next += (size)
    TAKE(some.vcpus, most), TAKE(some.demand, most), TAKE(some.weight, most), TAKE(some.brief, most);
    TAKE(some.run, most), TAKE(some.want, most), TAKE(some.fair, most), TAKE(some.lacked, most);
    TAKE(size, most), TAKE(asks, most), TAKE(of_hogs, most);
    TAKE(wanted, most * NODES), TAKE(got, most * NODES), TAKE(lacking, most * NODES);
    TAKE(now, most), TAKE(ran, most), TAKE(want, most), TAKE(lacked, most), TAKE(owed, most);
    TAKE(late_run, most), TAKE(late_want, most);
    TAKE(factors, most * count), TAKE(moments, most * count + parts * count), TAKE(room, most + 1);
#undef TAKE
    int64_t *ints = (int64_t *)next;
    scratch->some.loop = ints, scratch->kind = ints + most, scratch->first = ints + 2 * most;
    scratch->mask = (uint64_t *)(ints + 3 * most + 2);
    return memory;
}

int share_hosts(int64_t hosts, int64_t pcpus, int64_t parts, int64_t count, const double *cpus, const int64_t *counts,
                const double *vcpus, const double *demand, const double *growth, const double *day, const double *most,
                const int64_t *loop, const double *weight, const double *brief, const double *astray,
                const uint8_t *allowed, const double *sizes, const double *moments, const double *chances, double *run,
                double *want, double *lacked, double *fair, double *asked, double *worst, double *crowded)
{
    Scratch scratch = {0};
    int64_t largest = 1, failed = 0;
    for (int64_t host = 0; host < hosts; host++)
        largest = counts[host] > largest ? counts[host] : largest;
    int64_t keys = largest > parts * count ? largest : parts * count;
    void *memory = prepare(&scratch, largest, (pcpus + 63) / 64, parts, count);
    Keyed *keyed = malloc(sizeof(Keyed) * (size_t)keys);
    failed = !memory || !keyed;
    for (int64_t number = 0, own = 0; number < hosts && !failed; own += counts[number], number++) {
        int64_t here = counts[number];
        Host host = {vcpus + own, weight + own, brief + own, loop + own, astray[number]};
        int64_t sets = sets_of(cpus[number], allowed + own * pcpus, pcpus, sizes + own, here, keyed, &scratch);
        if (sets < 0) {
            failed = 1;
            break;
        }
        int64_t times = moment_factors(demand + own, growth + own, day + own * parts, parts, here, moments, chances, count,
                                       keyed, &scratch);
        double passed = 0.0;
        memset(scratch.late_run, 0, sizeof(double) * (size_t)here);
        memset(scratch.late_want, 0, sizeof(double) * (size_t)here);
        for (int64_t moment = 0; moment < times; moment++) {
            double part = times == 1 ? 1.0 : chances[moment];
            passed += part;
            for (int64_t at = 0; at < here; at++)
                scratch.now[at] = least(demand[own + at] * scratch.factors[moment * here + at], most[own + at]);
            crowded[number] += part * share_host(sets, &host, here, &scratch);
            for (int64_t at = 0; at < here; at++) {
                run[own + at] += part * scratch.ran[at];
                want[own + at] += part * scratch.want[at];
                lacked[own + at] += part * scratch.lacked[at];
                fair[own + at] += part * scratch.owed[at];
                asked[own + at] += part * scratch.now[at];
                if (passed > LATE) {
                    scratch.late_run[at] += part * scratch.ran[at];
                    scratch.late_want[at] += part * scratch.want[at];
                }
            }
        }
        for (int64_t at = 0; at < here; at++)
            if (scratch.late_want[at] > 0)
                worst[own + at] = scratch.late_run[at] / scratch.late_want[at];
    }
    free(scratch.member);
    free(keyed);
    free(memory);
    return failed ? -1 : 0;
}

void normal_below(const double *values, double *chances, int64_t count)
{
    for (int64_t at = 0; at < count; at++)
        chances[at] = 0.5 * erfc(-values[at] * 0.70710678118654752440);
}
