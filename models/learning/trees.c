/* What `TreeEnsembles._walked` of models/learning/trees.py says in Python, for many rows.
 *
 * This is QuickScorer (Lucchese et al., SIGIR 2015) on ranks. A row's value is replaced by how many thresholds of that
 * feature it exceeds, so that a comparison is one of small integers, of which a processor makes several at once. Each
 * split that a row does not pass removes the leaves on its left from a set of bits; the leftmost that remains is the row's
 * leaf. Sets are words of 16 leaves, and a split stands with each word that it changes. Arrays were made and checked in
 * Python. Returns 0, or -1 without memory. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK = 64, LANES = 8, VECTORS = BLOCK / LANES, BITS = 16, MOST_WORDS = 4, UNKNOWN_RIGHT = 32767 };
static const double NOTHING = 1.0000000180025095e-35; /* the float 1e-35f: LightGBM takes less for zero */

typedef int16_t Lanes __attribute__((vector_size(2 * LANES)));

/* Ranks of a block of rows: those where an unknown value goes right, and after them those where it goes left. */
static void rank_rows(const double *x, int64_t here, int64_t columns, const int64_t *first, const double *thresholds,
                      int16_t *ranks)
{
    for (int64_t column = 0; column < columns; column++) {
        const double *begin = thresholds + first[column];
        int64_t count = first[column + 1] - first[column];
        int16_t *right = ranks + column * BLOCK, *left = right + columns * BLOCK;
        for (int64_t row = 0; count && row < BLOCK; row++) {
            double given = row < here ? x[row * columns + column] : 0.0;
            if (isnan(given)) {
                right[row] = UNKNOWN_RIGHT;
                left[row] = 0;
                continue;
            }
            if (fabs(given) <= NOTHING)
                given = 0.0;
            const double *base = begin;
            for (int64_t length = count; length > 0;) { /* how many thresholds are below it */
                int64_t half = (length + 1) / 2;
                base += base[half - 1] < given ? half : 0;
                length -= half;
            }
            right[row] = left[row] = (int16_t)(1 + (base - begin));
        }
    }
}

int score_trees(int64_t rows, int64_t columns, int64_t ensembles, const int64_t *ends, const int64_t *first_word,
                const int64_t *first_split, const int64_t *first_leaf, const int32_t *column, const int16_t *rank,
                const int16_t *kept, const double *leaf, const int64_t *first_threshold, const double *thresholds,
                const double *x, double *sums)
{
    size_t size = sizeof(int16_t) * 2 * BLOCK * (size_t)(columns + 1);
    int16_t *ranks = aligned_alloc(2 * LANES, size), left[MOST_WORDS][BLOCK] __attribute__((aligned(2 * LANES)));
    if (!ranks)
        return -1;
    for (int64_t begin = 0; begin < rows; begin += BLOCK) {
        int64_t here = rows - begin < BLOCK ? rows - begin : BLOCK, tree = 0;
        rank_rows(x + begin * columns, here, columns, first_threshold, thresholds, ranks);
        for (int64_t ensemble = 0; ensemble < ensembles; ensemble++) {
            double *totals = sums + ensemble * rows + begin;
            for (int64_t row = 0; row < here; row++)
                totals[row] = 0.0;
            for (; tree < ends[ensemble]; tree++) {
                int64_t words = first_word[tree + 1] - first_word[tree];
                for (int64_t word = 0; word < words; word++) {
                    const int64_t *of_word = first_split + first_word[tree] + word;
                    Lanes remain[VECTORS];
                    for (int at = 0; at < VECTORS; at++)
                        remain[at] = (Lanes){-1, -1, -1, -1, -1, -1, -1, -1};
                    for (int64_t split = of_word[0]; split < of_word[1]; split++) {
                        const Lanes *given = (const Lanes *)(ranks + (int64_t)column[split] * BLOCK);
                        Lanes most = rank[split] - (Lanes){0}, rest = kept[split] - (Lanes){0};
                        for (int at = 0; at < VECTORS; at++)
                            remain[at] &= (given[at] <= most) | rest;
                    }
                    for (int at = 0; at < VECTORS; at++)
                        ((Lanes *)left[word])[at] = remain[at];
                }
                const double *values = leaf + first_leaf[tree];
                for (int64_t row = 0; row < here && words == 1; row++)
                    totals[row] += values[__builtin_ctz((unsigned)left[0][row])];
                for (int64_t row = 0; row < here && words > 1; row++) {
                    int64_t word = 0;
                    while (!left[word][row])
                        word++;
                    totals[row] += values[BITS * word + __builtin_ctz((unsigned)left[word][row])];
                }
            }
        }
    }
    free(ranks);
    return 0;
}
