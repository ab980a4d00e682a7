"""Reads boosted trees from untrusted text. LightGBM itself would follow a damaged child index to any address.

The text is parsed strictly, checked, and written anew; LightGBM only reads the new text. So no difference between the
two parsers can be exploited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from models.learning.stored_trees import END, FIXED, SPLITS, StoredTrees, Tree

_FIELD = re.compile(r"(?P<name>[a-z_]+)=(?P<value>.*)")
_PLAIN = re.compile(r"[\n -~]*")
_HEAD_NAMES = {
    *FIXED, "label_index", "max_feature_idx", "feature_names", "feature_infos", "tree_sizes", "monotone_constraints",
}  # fmt: skip
_FLAGS = {"tree", "average_output"}
# Bit 0 of categories, bit 1 unknown goes left, bits 2-3 what is unknown (0 nothing, 1 zero, 2 nan);
# include/LightGBM/tree.h. LightGBM follows a category into a table that is not there.
_DECISIONS = {0, 2, 4, 6, 8, 10}
# Statistics that LightGBM writes and that predictions do not need.
_STATISTICS = {"split_gain", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count"}
_TREE_NAMES = {"num_leaves", "num_cat", "leaf_value", "is_linear", "shrinkage", *SPLITS, *_STATISTICS}


def read_trees(text: str, features: int) -> StoredTrees:
    """Trees on `features` features from the text of `Booster.model_to_string`; ValueError says what is wrong.

    Every field must occur once. The number of leaves determines how many children, features and thresholds a tree has.
    Splits must be numeric and leaf values finite. Each split and leaf has exactly one parent, which comes before it
    (LightGBM numbers nodes as it splits). Otherwise a tree could contain a cycle, or so many paths that preparing it
    would never end. Fields that predictions do not need are dropped, among them the byte offsets `tree_sizes`, which
    LightGBM's parallel parser would trust.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError("it holds characters that no trees are written with")
    body, found, _ = text.partition(f"\n{END}\n")
    if not found:
        raise ValueError(f"it has no line {END!r}")
    head, *blocks = re.split(r"\n{2,}", body.strip("\n"))
    averaged = _check_head(head, features)
    trees = []
    for number, block in enumerate(blocks):
        try:
            trees.append(_tree(block, number, features))
        except (KeyError, ValueError, OverflowError) as error:
            raise ValueError(f"tree {number} is damaged: {error}") from None
    if not trees:
        raise ValueError("it has no trees")
    return StoredTrees(trees, features, averaged)


def _check_head(head: str, features: int) -> bool:
    """Check the header; True where the trees are averaged (random forest) instead of added."""
    lines = head.split("\n")
    flags = [line for line in lines if "=" not in line]
    if lines[0] != "tree" or len(set(flags)) < len(flags) or not _FLAGS.issuperset(flags):
        raise ValueError("it does not begin as trees do")
    fields = _fields([line for line in lines if "=" in line], _HEAD_NAMES)
    if fields.get("max_feature_idx") != str(features - 1):
        raise ValueError("it has another number of features than the model")
    for name, value in FIXED.items():
        if fields.get(name) != value:
            raise ValueError(f"its {name} is not {value}")
    return "average_output" in flags


def _fields(lines: Sequence[str], known: set[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        name = match["name"] if match else ""
        if match is None or name not in known:
            raise ValueError(f"{line[:40]!r} is none of its fields")
        if name in fields:
            raise ValueError(f"{name} stands twice")
        fields[name] = match["value"]
    return fields


def _tree(block: str, number: int, features: int) -> Tree:
    title, *lines = block.split("\n")
    if title != f"Tree={number}":
        raise ValueError(f"it begins with {title[:40]!r}")
    fields = _fields(lines, _TREE_NAMES)
    leaves = int(fields["num_leaves"])
    splits = leaves - 1
    if int(fields["num_cat"]) or int(fields.get("is_linear", "0")):
        raise ValueError("it has other than plain numeric splits")
    values = _numbers(fields, "leaf_value", leaves)
    if any(map(math.isinf, values)):  # as a threshold LightGBM writes it itself: all that is known goes left
        raise ValueError("leaf_value is not finite")
    if not splits:
        return Tree(values, (), (), (), (), ())
    tree = Tree(
        values,
        feature=_whole(fields, "split_feature", splits),
        threshold=_numbers(fields, "threshold", splits),
        decision=_whole(fields, "decision_type", splits),
        left=_whole(fields, "left_child", splits),
        right=_whole(fields, "right_child", splits),
    )
    if not _DECISIONS.issuperset(tree.decision):
        raise ValueError("decision_type is none of a plain numeric split")
    if not all(0 <= one < features for one in tree.feature):
        raise ValueError("split_feature names a feature that is not there")
    _check_children(tree, leaves)
    return tree


def _check_children(tree: Tree, leaves: int) -> None:
    """Check that each split but the first, and each leaf, has exactly one parent, which comes before it."""
    led_to = set()
    for name, side in (("left_child", tree.left), ("right_child", tree.right)):
        for node, child in enumerate(side):
            if not (node < child < leaves - 1 or -leaves <= child < 0) or child in led_to:
                raise ValueError(f"{name} of node {node} leads to {child}")
            led_to.add(child)


def _words(fields: dict[str, str], name: str, count: int) -> list[str]:
    found = fields[name].split(" ")
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} values for {count}")
    return found


def _whole(fields: dict[str, str], name: str, count: int) -> list[int]:
    return [int(word) for word in _words(fields, name, count)]


def _numbers(fields: dict[str, str], name: str, count: int) -> list[float]:
    numbers = [float(word) for word in _words(fields, name, count)]
    if any(map(math.isnan, numbers)):
        raise ValueError(f"{name} holds what is no number")
    return numbers
