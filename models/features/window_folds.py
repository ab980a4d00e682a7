"""Folds of windows, so that nothing leaks: by host with everybody who was ever there, and by time."""

from __future__ import annotations

import numpy as np

from models.arrays import Ints
from models.features.examples import Examples
from models.features.folds import FOLDS, Fold

NEWEST_S = 7 * 86_400.0  # the newest week is held out …
NEWEST_SHARE = 1 / 6  # … or the newest sixth of the time where that is less
FEWEST_HOSTS = 2  # with fewer no host can be left out


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
