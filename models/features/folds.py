"""Cross-validation folds, by what a user's cloud differs in: campaign, machine, family of workloads, pair, host, time.

Each function gives pairs of training and test rows, as scikit-learn's splitters do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from models.arrays import Ints
from models.features.examples import Examples

Fold = tuple[Ints, Ints]  # training rows, test rows

FOLDS = 4  # of pairs and hosts: each is large enough
MOST_FOLDS = 6  # of campaigns and workloads: one by one up to here, groups of them beyond
FEW_FAMILIES = 4  # with fewer, programs are left out one by one
_VARIANT = re.compile(r"[-_.]?\d.*$")  # what numbers the variants of one program: `web-10k`, `cpu2`
NEWEST_S = 7 * 86_400.0  # the newest week is held out …
NEWEST_SHARE = 1 / 6  # … or the newest sixth of the time where that is less
FEWEST_HOSTS = 2  # with fewer no host can be left out


def family(workload: str) -> str:
    """What variants of a program have in common: the name up to the first number."""
    return _VARIANT.sub("", workload) or workload


def elsewhere_of(examples: Examples) -> tuple[str, ...]:
    """What is left out as a whole: campaigns, or platforms where there is one campaign; (R,)."""
    return examples.campaign if len(set(examples.campaign)) > 1 else examples.platform


def elsewhere_folds(examples: Examples) -> list[Fold]:
    """Folds that leave out campaigns, or platforms where there is one campaign; none where there is one platform."""
    labels = elsewhere_of(examples)
    return _by_label(labels, MOST_FOLDS) if len(set(labels)) > 1 else []


def pair_folds(examples: Examples, seed: int = 0, folds: int | None = None) -> list[Fold]:
    """Folds in which all rows of one set of workloads, in all repeats and settings, are on the same side."""
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    number = np.random.default_rng(seed).permutation(len(pairs)) % (folds or FOLDS)
    return _by_number(number[which])


def workload_folds(examples: Examples, most: int | None = None) -> list[Fold]:
    """Folds that leave out every run with one family of workloads, or with one group of families."""
    names = examples.workloads
    families = {name: family(name) for name in names}
    if len(set(families.values())) < FEW_FAMILIES:
        families = {name: name for name in names}
    group = {one: number % (most or MOST_FOLDS) for number, one in enumerate(sorted(set(families.values())))}
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    members = [{group[families[name]] for name in pair.split("+")} for pair in pairs]
    folds: list[Fold] = []
    for number in range(max(group.values(), default=-1) + 1):
        inside = np.array([number in one for one in members], dtype=bool)[which]
        if inside.any() and not inside.all():
            folds.append((np.flatnonzero(~inside), np.flatnonzero(inside)))
    return folds


def newest_fold(examples: Examples) -> Fold:
    """Rows of the older and of the newest windows; none are newest where all ended at once."""
    last, first = examples.ends_s.max(), examples.ends_s.min()
    newest = examples.ends_s > last - min(NEWEST_S, NEWEST_SHARE * (last - first))
    newest &= last > first
    return np.flatnonzero(~newest), np.flatnonzero(newest)


def host_folds(examples: Examples, rows: Ints, seed: int = 0) -> list[Fold]:
    """Folds of these `rows` that leave out hosts, and of the other hosts whoever was on one of those, too.

    Of a single host they are spans of time.
    """
    hosts, which = np.unique(np.array([examples.pair[row] for row in rows], dtype=np.str_), return_inverse=True)
    if len(hosts) < FEWEST_HOSTS:
        spans = np.array_split(rows[np.argsort(examples.ends_s[rows], kind="stable")], FOLDS)
        return [(np.setdiff1d(rows, test), np.sort(test)) for test in spans if 0 < len(test) < len(rows)]
    order = np.random.default_rng(seed).permutation(len(hosts))
    victims = np.array([examples.victim[row] for row in rows], dtype=np.str_)
    found = []
    for fold in range(min(FOLDS, len(hosts))):
        test = np.isin(which, order[fold :: min(FOLDS, len(hosts))])
        train = ~test & ~np.isin(victims, victims[test])
        if train.any():
            found.append((rows[train], rows[test]))
    return found


def _by_label(labels: Sequence[str], most: int) -> list[Fold]:
    names, which, count = np.unique(np.array(labels, dtype=np.str_), return_inverse=True, return_counts=True)
    number = np.empty(len(names), dtype=np.int64)
    number[np.argsort(-count, kind="stable")] = np.arange(len(names)) % most
    return _by_number(number[which])


def _by_number(number: Ints) -> list[Fold]:
    folds = [(np.flatnonzero(number != one), np.flatnonzero(number == one)) for one in np.unique(number)]
    return [(train, test) for train, test in folds if len(train) and len(test)]
