"""Weighted max-min fair sharing of CPUs and links by water-filling, for many scenes at once."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats

_STEPS = 1e8  # a host's CPUs in whole numbers, for the integer flow; what is lost by it is below a measurable share


def fill(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """Share one resource max-min fairly: nobody can get more unless someone with less per weight gets less.

    `capacity` (S,), `demand` and `weight` (S, K) with weight > 0. Returns what each gets, (S, K), in sum
    min(capacity, demand). Every consumer is filled up to a common level per weight (water-filling; progressive filling,
    Bertsekas and Gallager, Data Networks, 6.5.2).
    """
    got = np.maximum(demand, 0.0)
    scarce = np.flatnonzero(got.sum(axis=1) > capacity)  # nobody is filled up where all get what they want
    if len(scarce):
        got[scarce] = _filled(capacity[scarce], got[scarce], weight[scarce])
    return got


def _filled(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """`fill` where the demand is above the capacity."""
    ends = demand / weight
    levels = np.concatenate([np.zeros_like(ends), ends], axis=1)
    slopes = np.concatenate([weight, -weight], axis=1) * np.concatenate([demand > 0, demand > 0], axis=1)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=1), axis=1)
    # filled[k] = how much is handed out when the level has risen to levels[k]
    filled = np.cumsum(np.diff(levels, axis=1, prepend=levels[:, :1]) * _shifted(slope), axis=1)
    filled[:, -1] = np.maximum(filled[:, -1], capacity)  # the last level holds all of it, whatever was lost in rounding
    reached = np.argmax(filled >= (capacity - 1e-15)[:, None], axis=1)
    rows = np.arange(len(demand))
    over = filled[rows, reached] - capacity
    before = np.where(reached > 0, slope[rows, reached - 1], 0.0)
    level = levels[rows, reached] - np.divide(over, before, out=np.zeros_like(over), where=before > 0)
    return np.asarray(np.clip(level[:, None] * weight, 0.0, demand))


def _shifted(slope: Floats) -> Floats:
    """The slope just before each breakpoint."""
    return np.concatenate([np.zeros((len(slope), 1)), slope[:, :-1]], axis=1)


def share_sets(demand: Floats, weight: Floats, allowed: Bools, capacity: Floats) -> Floats:
    """Weighted max-min shares when each consumer may only use some of the resources.

    `demand`, `weight` (S, K); `allowed` (S, K, C); `capacity` (S, C). Returns totals per consumer, (S, K).
    Decomposition (Fujishige 1980; Groenevelt 1991): share everything as if anybody could use all of it; the consumers
    that then ask most beyond the resources they may use get exactly those, the others the rest, and so on.
    """
    count, _, classes = allowed.shape
    shares = np.zeros(demand.shape)
    scene = np.arange(count)
    who, what = (demand > 0) & allowed.any(axis=2), np.ones((count, classes), dtype=bool)
    while len(scene):
        room = np.where(what, capacity[scene], 0.0)
        got = fill(room.sum(axis=1), np.where(who, demand[scene], 0.0), weight[scene])
        may = allowed[scene] & who[:, :, None]
        # Where everybody may use all that is left, every share fits.
        open_ = np.flatnonzero((~may & who[:, :, None] & (room > 0)[:, None, :]).any(axis=(1, 2)))
        open_ = open_[~_fits(got[open_], may[open_], room[open_])]
        if not len(open_):
            np.add.at(shares, scene, got)
            break
        mine, theirs = _most_beyond(got[open_], may[open_], room[open_])
        apart = mine.any(axis=1)
        split = open_[apart]
        done = np.delete(np.arange(len(scene)), split)
        np.add.at(shares, scene[done], got[done])
        scene, who, what, mine, theirs = scene[split], who[split], what[split], mine[apart], theirs[apart]
        scene = np.concatenate([scene, scene])
        who, what = np.concatenate([who & mine, who & ~mine]), np.concatenate([what & theirs, what & ~theirs])
    return shares


def _fits(got: Floats, allowed: Bools, room: Floats) -> Bools:
    """Rows (R,) whose shares certainly fit: who may use least is served first, evenly from what is left of it.

    Exact where sets are nested or apart; where they overlap otherwise it may miss that the shares fit.
    """
    rows, left, missing = np.arange(len(got)), room.copy(), np.zeros(len(got))
    order = np.argsort((allowed * room[:, None, :]).sum(axis=2), axis=1, kind="stable")
    for consumer in order.T:
        open_to = np.where(allowed[rows, consumer], left, 0.0)
        total, want = open_to.sum(axis=1), got[rows, consumer]
        used = np.minimum(want, total)
        left -= open_to * np.divide(used, total, out=np.zeros_like(used), where=total > 0)[:, None]
        missing += want - used
    return np.asarray(missing <= 1e-9 * room.sum(axis=1))


def _most_beyond(got: Floats, allowed: Bools, room: Floats) -> tuple[Bools, Bools]:
    """The consumers (R, K) whose shares `got` exceed most what the resources they may use hold, and those (R, C).

    By a minimum cut of the flow from consumers to resources, the smallest one; nobody where every share fits.
    """
    rows, consumers, classes = allowed.shape
    total = room.sum(axis=1)
    if not rows:
        return np.zeros((0, consumers), dtype=bool), np.zeros((0, classes), dtype=bool)
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    scale = np.divide(_STEPS, total, out=np.zeros(rows), where=total > 0)[:, None]
    out = np.floor(got * scale).astype(np.int32)
    into = np.ceil(room * scale).astype(np.int32)
    row, consumer, resource = np.nonzero(allowed & (room > 0)[:, None, :])
    first = 2 + rows * consumers  # node 0 is the source, 1 the sink, then consumers, then resources
    consumer_nodes, resource_nodes = np.arange(2, first), np.arange(first, first + rows * classes)
    start = [np.zeros(rows * consumers, dtype=np.int64), 2 + row * consumers + consumer, resource_nodes]
    end = [consumer_nodes, first + row * classes + resource, np.ones(rows * classes, dtype=np.int64)]
    bound = np.concatenate([out.ravel(), out[row, consumer], into.ravel()])
    nodes = first + rows * classes
    graph = csr_matrix((bound, (np.concatenate(start), np.concatenate(end))), shape=(nodes, nodes))
    left = graph - maximum_flow(graph, 0, 1).flow
    left.eliminate_zeros()
    reached = np.zeros(nodes, dtype=bool)
    reached[breadth_first_order(left, 0, return_predecessors=False)] = True
    mine, theirs = reached[2:first].reshape(rows, consumers), reached[first:].reshape(rows, classes)
    beyond = np.where(mine, got, 0.0).sum(axis=1) - np.where(theirs, room, 0.0).sum(axis=1)
    over = (beyond > 4 * consumers * total / _STEPS)[:, None]
    return mine & over, theirs & over


def cpu_classes(affinity: Bools, pcpus: Floats) -> tuple[Bools, Floats]:
    """Join pCPUs that the same consumers may use: `affinity` (S, K, P) -> `allowed` (S, K, C), `capacity` (S, C) CPUs.

    CPUs beyond a host's `pcpus` and CPUs that nobody may use drop out. C is the most classes any scene has.
    """
    count, consumers, width = affinity.shape
    if consumers == 0 or count == 0:
        return np.zeros((count, consumers, 1), dtype=bool), np.zeros((count, 1))
    exists = np.arange(width)[None, :] < pcpus[:, None]
    columns = np.where(exists[:, None, :], affinity, False).transpose(0, 2, 1)  # (S, P, K)
    packed = np.packbits(columns, axis=2)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[2]))).reshape(count, width)
    _, code = np.unique(keys, return_inverse=True)
    code = code.reshape(count, width)
    order = np.argsort(code, axis=1, kind="stable")
    ordered = np.take_along_axis(code, order, axis=1)
    fresh = np.ones_like(ordered, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    used = np.take_along_axis(columns.any(axis=2), order, axis=1)
    fresh &= used
    number = np.cumsum(fresh, axis=1) - 1
    most = max(int(number.max(initial=0)) + 1, 1)
    allowed = np.zeros((count, consumers, most), dtype=bool)
    capacity = np.zeros((count, most))
    scene, position = np.nonzero(used)
    np.add.at(capacity, (scene, number[scene, position]), 1.0)
    scene, position = np.nonzero(fresh)
    allowed[scene, :, number[scene, position]] = columns[scene, order[scene, position], :]
    return allowed, capacity
