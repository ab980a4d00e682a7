"""A smooth base learner: ridge regression on a Gaussian kernel (Nystroem) and on products of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from models.arrays import Floats, Ints

CENTRES = 160  # of the kernel; the cost of a prediction grows with their number
LENGTHS = (0.5, 1.0, 2.0)  # length scales of the kernel, in median distances between rows
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # ridge penalties
LINEAR = (0.01, 1.0)  # prior variance of the linear part and the products, relative to the kernel's
COMPONENTS, VARIANCE, CROSSED = 8, 0.98, 4  # principal components of a block: most, share kept, used in products
BLOCKS = ("own", "near", "host", "prior", "other", "socket", "core")


@dataclass(frozen=True, slots=True)
class FeatureSpace:
    """A projection of features to K coordinates: principal components by block of features, each block with variance 1.

    Beyond the range of training, `least` to `most` (K,), a coordinate stays at its edge: products of coordinates would
    extrapolate without bound, and were off by a third more on new workloads and platforms (decision 97).

    A block is the instance's own metrics, its neighbours' metrics, and so on, however many metrics there are. `centre`
    (F,) are mean log features; `turn` (F, K) is the projection.
    """

    centre: Floats
    turn: Floats
    block: tuple[int, ...]  # (K,) of each coordinate, index into BLOCKS
    least: Floats
    most: Floats

    def __call__(self, x: Floats) -> Floats:
        """The coordinates of rows (R, F); (R, K)."""
        used = np.flatnonzero(self.turn.any(axis=1))  # features that were constant in training are not used
        at = _log(x[:, used], self.centre[used]) @ self.turn[used] - self.centre @ self.turn
        return np.asarray(np.clip(at, self.least, self.most))


def _log(x: Floats, fill: Floats) -> Floats:
    """Signed log1p of the features; unknown values and limits that are not set become `fill` (F,)."""
    logs = np.abs(x)
    np.copysign(np.log1p(logs, out=logs), x, out=logs)
    np.copyto(logs, fill, where=~np.isfinite(x))
    return logs


def fit_feature_space(x: Floats, names: Sequence[str]) -> FeatureSpace:
    """Fit principal components block by block."""
    known = np.isfinite(x)
    logs = np.where(known, _log(x, np.zeros(x.shape[1])), 0.0)
    centre = logs.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    off = np.where(known, logs - centre, 0.0)
    spread = off.std(axis=0)
    block_of = np.array([_block(name) for name in names])
    turns, blocks = [np.zeros((x.shape[1], 0))], []
    for number in range(len(BLOCKS)):
        columns = np.flatnonzero((block_of == number) & (spread > 1e-9))
        if not len(columns):
            continue
        scaled = off[:, columns] / spread[columns]
        _, size, axes = np.linalg.svd(scaled, full_matrices=False)
        share = np.cumsum(size**2) / np.sum(size**2)
        kept = min(int(np.searchsorted(share, VARIANCE)) + 1, COMPONENTS, len(size))
        turn = np.zeros((x.shape[1], kept))
        norm = np.sqrt(np.sum(size[:kept] ** 2) / len(x))
        turn[columns] = axes[:kept].T / spread[columns, None] / norm
        turns.append(turn)
        blocks += [number] * kept
    anywhere = np.full(len(blocks), np.inf)
    free = FeatureSpace(centre, np.concatenate(turns, axis=1), tuple(blocks), -anywhere, anywhere)
    at = free(x)
    return replace(free, least=at.min(axis=0), most=at.max(axis=0))


def _block(name: str) -> int:
    head = name.split(" ", maxsplit=1)[0]
    return BLOCKS.index(head) if head in BLOCKS and name != "near" else BLOCKS.index("other")


@dataclass(frozen=True, slots=True)
class KernelRidge:
    """A fitted kernel ridge regression.

    `centres` (C, K) have the weights `kernel` (C,); `linear` are weights of the coordinates and of products of own and
    neighbours' coordinates. Predictions are clipped to `low` and `high`, the range of the training residuals.
    """

    space: FeatureSpace
    centres: Floats
    length: float
    kernel: Floats
    linear: Floats
    offset: float
    low: float
    high: float

    def predict(self, x: Floats) -> Floats:
        """The correction to the log of the base ratio; (R,)."""
        at = self.space(x)
        value = _kernel(at, self.centres, self.length) @ self.kernel + _crossed(at, self.space) @ self.linear
        return np.clip(value + self.offset, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "centre": self.space.centre.tolist(),
            "turn": self.space.turn.tolist(),
            "block": list(self.space.block),
            "least": self.space.least.tolist(),
            "most": self.space.most.tolist(),
            "centres": self.centres.tolist(),
            "kernel": self.kernel.tolist(),
            "linear": self.linear.tolist(),
            **{name: getattr(self, name) for name in ("length", "offset", "low", "high")},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KernelRidge:
        """Inverse of `to_json`; KeyError, TypeError or ValueError on anything else."""
        centre = np.array(value["centre"], dtype=float)
        turn = np.array(value["turn"], dtype=float).reshape(len(centre), -1)
        least, most = (np.array(value[edge], dtype=float) for edge in ("least", "most"))
        space = FeatureSpace(centre, turn, tuple(int(number) for number in value["block"]), least, most)
        if least.shape != (turn.shape[1],) or most.shape != least.shape or not (least <= most).all():
            raise ValueError("the smooth member's coordinates have no range")
        centres = np.array(value["centres"], dtype=float).reshape(len(value["centres"]), turn.shape[1])
        model = cls(
            space,
            centres,
            float(value["length"]),
            np.array(value["kernel"], dtype=float),
            np.array(value["linear"], dtype=float),
            *(float(value[name]) for name in ("offset", "low", "high")),
        )
        crossed = _crossed(np.zeros((1, turn.shape[1])), space).shape[1]
        if model.kernel.shape != (len(centres),) or model.linear.shape != (crossed,):
            raise ValueError("the parts of the smooth member differ in size")
        return model


def _kernel(at: Floats, centres: Floats, length: float) -> Floats:
    """Gaussian kernel; (R, C)."""
    near = at @ (centres.T * (2 / length))  # changed in place below: it is the largest array of a prediction
    near -= np.einsum("rk,rk->r", at, at)[:, None] / length
    near -= np.einsum("ck,ck->c", centres, centres) / length
    np.minimum(near, 0.0, out=near)
    return np.asarray(np.exp(near, out=near))


def _crossed(at: Floats, space: FeatureSpace) -> Floats:
    """The coordinates, and products of own with near, host and socket ones: sensitivity times pressure; (R, K')."""
    block = np.array(space.block, dtype=int)
    own = np.flatnonzero(block == BLOCKS.index("own"))[:CROSSED]
    parts = [at]
    for name in ("near", "host", "socket"):
        around = np.flatnonzero(block == BLOCKS.index(name))[:CROSSED]
        parts.append((at[:, own, None] * at[:, None, around]).reshape(len(at), -1))
    return np.concatenate(parts, axis=1)


def fit_kernel_ridge(
    x: Floats, target: Floats, weight: Floats, names: Sequence[str], folds: Sequence[tuple[Ints, Ints]], *, seed: int
) -> KernelRidge:
    """Fit to residuals of the log ratio (R,); length scale and penalties are those with the lowest error on the folds.

    The kernel part is the Nystroem approximation of a Gaussian process with CENTRES rows (Rasmussen and Williams,
    section 8.1), so the cost of a prediction does not depend on the number of training rows.
    """
    space = fit_feature_space(x, names)
    at = space(x)
    random = np.random.default_rng(seed)
    rows = np.sort(random.permutation(len(x))[:CENTRES])
    centres = at[rows]
    crossed = _crossed(at, space)
    scale = np.sqrt((crossed**2).mean(axis=0)) + 1e-9
    offset = float(np.average(target, weights=weight))
    around = target - offset
    between = ((centres[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    typical = float(np.median(between[between > 0])) if (between > 0).any() else 1.0
    best: tuple[float, float, float, float] | None = None
    for length in LENGTHS:
        design = np.concatenate([_kernel(at, centres, typical * length), crossed / scale], axis=1)
        whiten = _whitener(_kernel(centres, centres, typical * length))
        turned = np.concatenate([design[:, : len(centres)] @ whiten, design[:, len(centres) :]], axis=1)
        for linear in LINEAR:
            scaled = turned * _weights(whiten.shape[1], crossed.shape[1], linear)
            losses = _losses(scaled, around, weight, folds)
            for penalty, loss in zip(PENALTIES, losses, strict=True):
                if best is None or loss < best[0] * (1 - 1e-6):
                    best = (loss, length, linear, penalty)
    assert best is not None  # noqa: S101 - the loops ran
    _, length, linear, penalty = best
    whiten = _whitener(_kernel(centres, centres, typical * length))
    by_size = _weights(whiten.shape[1], crossed.shape[1], linear)
    turned = np.concatenate([_kernel(at, centres, typical * length) @ whiten, crossed / scale], axis=1) * by_size
    found = _ridge(turned.T * weight @ turned, turned.T * weight @ around, penalty) * by_size
    return KernelRidge(
        space=space,
        centres=centres,
        length=typical * length,
        kernel=whiten @ found[: whiten.shape[1]],
        linear=found[whiten.shape[1] :] / scale,
        offset=offset,
        low=float(target.min()),
        high=float(target.max()),
    )


def _weights(kernels: int, others: int, linear: float) -> Floats:
    """Prior scales of the weights: the linear part as a whole has `linear` times the kernel's variance."""
    return np.concatenate([np.ones(kernels), np.full(others, np.sqrt(linear / max(others, 1)))])


def _whitener(kernel: Floats) -> Floats:
    """W with W W' = inverse of the kernel between the centres, without directions that are only rounding errors."""
    values, vectors = np.linalg.eigh(kernel)
    used = values > 1e-8 * values[-1]
    return np.asarray(vectors[:, used] / np.sqrt(values[used]))


def _losses(design: Floats, target: Floats, weight: Floats, folds: Sequence[tuple[Ints, Ints]]) -> list[float]:
    """Mean absolute error on the left-out folds for each of PENALTIES."""
    losses = np.zeros(len(PENALTIES))
    count = 0
    for train, test in folds:
        part = design[train]
        gram, right = part.T * weight[train] @ part, part.T * weight[train] @ target[train]
        for number, penalty in enumerate(PENALTIES):
            losses[number] += np.abs(target[test] - design[test] @ _ridge(gram, right, penalty)).sum()
        count += len(test)
    return [float(loss) / max(count, 1) for loss in losses]


def _ridge(gram: Floats, right: Floats, penalty: float) -> Floats:
    return np.asarray(np.linalg.solve(gram + penalty * np.eye(len(gram)), right))
