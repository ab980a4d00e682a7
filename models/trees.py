"""Boosted trees as text, read as untrusted: LightGBM follows a damaged child index wherever it leads."""

from __future__ import annotations

import math
import re

import lightgbm

_SIZES = re.compile(r"(?m)^tree_sizes=.*\n")


def read_trees(text: str, features: int) -> lightgbm.Booster:
    """A booster on `features` features from what `Booster.model_to_string` wrote; ValueError says what is wrong.

    Each tree must have as many children, features and thresholds as its number of leaves asks for, no child before its
    parent (LightGBM numbers nodes as it splits, so a tree that runs backwards never ends), plain numeric splits and
    finite leaves. The line `tree_sizes`, byte offsets that LightGBM's parallel parser trusts, is left out: it then
    reads the trees one by one.
    """
    head, *trees = re.split(r"(?m)^Tree=\d+$", text.partition("\nend of trees")[0])
    if _fields(head).get("max_feature_idx") != str(features - 1):
        raise ValueError("it has another number of features than the model")
    for number, tree in enumerate(trees):
        try:
            _check(_fields(tree), features)
        except (KeyError, ValueError) as error:
            raise ValueError(f"tree {number} is damaged: {error}") from None
    return lightgbm.Booster(model_str=_SIZES.sub("", text))


def _fields(part: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in part.splitlines() if "=" in line)


def _check(tree: dict[str, str], features: int) -> None:
    leaves = int(tree["num_leaves"])
    splits = leaves - 1
    values = _numbers(tree, "leaf_value", leaves)
    if not all(map(math.isfinite, values)):
        raise ValueError("leaf_value holds what is no number")
    if int(tree["num_cat"]) or int(tree.get("is_linear", "0")):
        raise ValueError("it has other than plain numeric splits")
    if not splits:
        return
    if any(map(math.isnan, _numbers(tree, "threshold", splits))):
        raise ValueError("threshold holds what is no number")
    if not all(0 <= int(one) < 16 for one in _words(tree, "decision_type", splits)):
        raise ValueError("decision_type is none that is known")
    if not all(0 <= int(one) < features for one in _words(tree, "split_feature", splits)):
        raise ValueError("split_feature names a feature that is not there")
    for side in ("left_child", "right_child"):
        for node, child in enumerate(map(int, _words(tree, side, splits))):
            if not (node < child < splits or -leaves <= child < 0):
                raise ValueError(f"{side} of node {node} leads to {child}")


def _words(tree: dict[str, str], name: str, count: int) -> list[str]:
    found = tree[name].split()
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} values for {count}")
    return found


def _numbers(tree: dict[str, str], name: str, count: int) -> list[float]:
    return [float(word) for word in _words(tree, name, count)]
