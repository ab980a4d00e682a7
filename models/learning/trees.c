/* What `TreeEnsembles._walked` and `_bounded` of models/learning/trees.py say in Python, for many rows. The arrays were
 * checked there: the left child of split n is n + 1, its right child stands behind that, and a leaf has no feature, so
 * that every way through a tree ends. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { TOGETHER = 8, BLOCK = 64 };
static const double NOTHING = 1.0000000180025095e-35; /* the float 1e-35f: LightGBM takes less for zero */

typedef struct { double threshold; int32_t feature, next[2]; } Step;

/* One array of steps, in which a leaf leads to itself: all rows then go equally far, without a branch to mispredict. */
static Step *steps_of(int64_t nodes, const int32_t *feature, const double *threshold, const int32_t *right)
{
    Step *steps = malloc(sizeof(Step) * (size_t)nodes);
    for (int64_t at = 0; steps && at < nodes; at++) {
        int leaf = feature[at] < 0;
        steps[at] = (Step){leaf ? INFINITY : threshold[at], leaf ? 0 : feature[at],
                           {leaf ? (int32_t)at : (int32_t)at + 1, leaf ? (int32_t)at : right[at]}};
    }
    return steps;
}

static int64_t deepest(int64_t node, const int32_t *feature, const int32_t *right, int64_t *depth, int64_t end)
{
    int64_t most = 0;
    depth[node] = 0;
    for (int64_t at = node; at < end; at++) {
        if (depth[at] > most)
            most = depth[at];
        if (feature[at] >= 0)
            depth[at + 1] = depth[right[at]] = depth[at] + 1;
    }
    return most;
}

int walk_trees(int64_t rows, int64_t columns, int64_t trees, int64_t ensembles, const int64_t *first, const int64_t *ends,
               const int32_t *feature, const double *threshold, const int32_t *right, const uint8_t *unknown_left,
               const double *value, const double *x, double *sums)
{
    int64_t nodes = first[trees];
    Step *steps = steps_of(nodes, feature, threshold, right);
    int64_t *depth = malloc(sizeof(int64_t) * (size_t)(nodes + 1)), *levels = malloc(sizeof(int64_t) * (size_t)(trees + 1));
    double *block = malloc(sizeof(double) * (size_t)(BLOCK * columns + 1));
    int failed = !steps || !depth || !levels || !block;
    for (int64_t tree = 0; tree < trees && !failed; tree++)
        levels[tree] = deepest(first[tree], feature, right, depth, first[tree + 1]);
    for (int64_t begin = 0; begin < rows && !failed; begin += BLOCK) {
        int64_t here = rows - begin < BLOCK ? rows - begin : BLOCK;
        int unknown[BLOCK];
        for (int64_t row = 0; row < BLOCK; row++) {
            const double *given = x + (begin + (row < here ? row : 0)) * columns; /* rows that are not there repeat one */
            unknown[row] = 0;
            for (int64_t column = 0; column < columns; column++) {
                block[row * columns + column] = fabs(given[column]) > NOTHING ? given[column] : isnan(given[column]) ? NAN : 0.0;
                unknown[row] |= isnan(given[column]);
            }
        }
        for (int64_t row = 0; row < here; row += TOGETHER) {
            const double *at = block + row * columns;
            int some = 0;
            for (int64_t one = 0; one < TOGETHER; one++)
                some |= unknown[row + one];
            int64_t tree = 0;
            for (int64_t ensemble = 0; ensemble < ensembles; ensemble++) {
                double total[TOGETHER] = {0};
                for (; tree < ends[ensemble]; tree++) {
                    int32_t node[TOGETHER];
                    for (int one = 0; one < TOGETHER; one++)
                        node[one] = (int32_t)first[tree];
                    for (int64_t level = 0; level < levels[tree]; level++)
                        for (int one = 0; one < TOGETHER; one++) {
                            const Step *step = steps + node[one];
                            double found = at[one * columns + step->feature];
                            int goes_right = !(found <= step->threshold);
                            if (some && isnan(found))
                                goes_right = !unknown_left[node[one]];
                            node[one] = step->next[goes_right];
                        }
                    for (int one = 0; one < TOGETHER; one++)
                        total[one] += value[node[one]];
                }
                for (int64_t one = 0; one < TOGETHER && row + one < here; one++)
                    sums[ensemble * rows + begin + row + one] = total[one];
            }
        }
    }
    free(steps), free(depth), free(levels), free(block);
    return failed ? -1 : 0;
}

int bound_trees(int64_t boxes, int64_t columns, int64_t trees, int64_t ensembles, const int64_t *first, const int64_t *ends,
                const int32_t *feature, const double *threshold, const int32_t *right, const uint8_t *unknown_left,
                const double *value, const double *low, const double *high, double *least, double *most)
{
    (void)unknown_left; /* what may be unknown may be anything */
    int64_t nodes = first[trees];
    int32_t *waiting = malloc(sizeof(int32_t) * (size_t)(nodes + 1));
    if (!waiting)
        return -1;
    for (int64_t box = 0; box < boxes; box++) {
        const double *from = low + box * columns, *to = high + box * columns;
        int64_t tree = 0;
        for (int64_t ensemble = 0; ensemble < ensembles; ensemble++) {
            double lowest = 0.0, highest = 0.0;
            for (; tree < ends[ensemble]; tree++) {
                double down = INFINITY, up = -INFINITY;
                int64_t count = 0;
                waiting[count++] = (int32_t)first[tree];
                while (count) {
                    int32_t node = waiting[--count];
                    if (feature[node] < 0) {
                        down = value[node] < down ? value[node] : down;
                        up = value[node] > up ? value[node] : up;
                        continue;
                    }
                    /* false where an edge is unknown: then both ways are open */
                    if (!(to[feature[node]] <= threshold[node] && from[feature[node]] <= threshold[node]))
                        waiting[count++] = right[node];
                    if (!(from[feature[node]] > threshold[node] && to[feature[node]] > threshold[node]))
                        waiting[count++] = node + 1;
                }
                lowest += down;
                highest += up;
            }
            least[ensemble * boxes + box] = lowest;
            most[ensemble * boxes + box] = highest;
        }
    }
    free(waiting);
    return 0;
}
