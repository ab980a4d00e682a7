"""Trees of a stranger: whatever stands in the text, it is refused or predicts finite numbers; nothing dies or hangs."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import lightgbm
import numpy as np
import pytest

from models.learning.boosting import fit_boosters, fit_forest
from models.learning.tree_text import read_trees

FEATURES = 4
ROUNDS = 1500
NASTY = ["0", "-1", "1", "-8", "7", "123456789", "-2147483648", "99999999999999999999", "nan", "inf", "1e400", "", "x",
         "3"]  # fmt: skip
LINES = ["", "Tree=0", "end of trees", "left_child=123456789 0 0 0 0 0", "num_cat=1", "is_linear=1", "tree_sizes=1 2 3"]
LINES += ["cat_boundaries=0 99999999", "leaf_const=1", "pandas_categorical:" + "[" * 10_000, "num_leaves=2147483647"]
# Reads one text a line, and says of each what became of it before it reads the next.
CHILD = """
import json, sys
import numpy as np
from models.learning.quickscorer import QuickScorer
from models.learning.tree_text import read_trees

rows = np.array([[0.1, 0.5, np.nan, 0.9], [1e300, -1e300, 0.0, 5.0], [0.4, 0.4, 0.4, 0.4]])
for line in sys.stdin:
    try:
        booster = read_trees(json.loads(line), 4)
    except ValueError:
        print("refused", flush=True)
        continue
    said = booster.predict(rows, num_threads=1)
    leaves = QuickScorer.of([booster])
    if leaves is not None:
        assert np.isfinite(leaves(rows)).all()
    assert np.isfinite(said).all(), said
    print("predicts", flush=True)
"""


@pytest.fixture(scope="module")
def booster() -> lightgbm.Booster:
    x = np.random.default_rng(0).random((60, FEATURES))
    return fit_boosters(x, x[:, 0] + 0.3 * x[:, 1], None, np.array([1, 0, 0, 0], dtype=np.int8), seed=1, count=1)[0]


@pytest.fixture(scope="module")
def text(booster: lightgbm.Booster) -> str:
    return _few(booster.model_to_string())


def _few(text: str) -> str:
    """The first three trees: more of them make the attacks no better."""
    head, *trees = text.partition("\nend of trees")[0].split("\nTree=")
    return "\nTree=".join([head, *trees[:3]]) + "\nend of trees\n\npandas_categorical:null\n"


def damaged(text: str, chance: random.Random) -> str:
    """One to three changes: of a word, a line, the order of lines, or with a character that some readers split at."""
    lines = text.split("\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        name, found, value = lines[at].partition("=")
        match chance.randrange(8):
            case 0 if found:
                words = value.split(" ")
                words[chance.randrange(len(words))] = chance.choice(NASTY)
                lines[at] = f"{name}={' '.join(words)}"
            case 1:
                del lines[at]
            case 2:
                lines.insert(at, chance.choice(LINES))
            case 3 if found:
                words = value.split(" ")
                chance.shuffle(words)
                lines.insert(at + chance.randrange(2), f"{name}={' '.join(words)}")
            case 4 if found:
                lines[at] = f"{name}={value} {chance.choice(NASTY)}"
            case 5:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 6 if lines[at]:
                place = chance.randrange(len(lines[at]))
                lines[at] = lines[at][:place] + chance.choice("\x0b\x0c\r\x1c\x85\u2028\0\t é") + lines[at][place:]
            case _:
                lines[at] = f"{lines[at]}{chance.choice(['=', ' ', '  ', '=1', '0'])}"
        if not lines:
            break
    return "\n".join(lines)


def outcomes(texts: list[str]) -> list[str]:
    """What became of each, read by another process; the first that ends it is shown."""
    given = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, timeout=240, check=False
    )
    said = done.stdout.splitlines()
    fatal = texts[len(said)] if len(said) < len(texts) else ""
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}\n{fatal}"
    return said


@pytest.fixture(scope="module")
def said(text: str) -> tuple[list[str], list[str]]:
    """What became of damaged texts, and of those in which a field stands twice, read by one process."""
    chance = random.Random(20261123)
    found = outcomes([*(damaged(text, chance) for _ in range(ROUNDS)), *with_a_field_twice(text)])
    return found[:ROUNDS], found[ROUNDS:]


def with_a_field_twice(text: str) -> list[str]:
    good = next(line for line in text.split("\n") if line.startswith("left_child="))
    bad = "left_child=" + " ".join(["123456789"] * len(good.split(" ")))
    attacks = [text.replace(good, f"{bad}\n\n{good}", 1), text.replace(good, f"{bad}\n{good}", 1)]
    attacks += [text.replace(good, f"{good}\n{bad}", 1), text.replace(good, f"{bad}\x0b{good}", 1)]
    attacks += [text.replace(good, f"x\x0b{good}\n{bad}", 1), text.replace(good, good.replace(good, bad), 1)]
    return attacks


def test_no_damage_ends_the_process_that_reads_it(said: tuple[list[str], list[str]]) -> None:
    damage, _ = said
    assert {"refused", "predicts"} == set(damage)
    assert damage.count("refused") > ROUNDS / 2


def test_a_field_that_stands_twice_is_refused_whichever_a_reader_takes(said: tuple[list[str], list[str]]) -> None:
    assert said[1] == ["refused"] * 6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("decision_type", "1"),  # a category: a table that is not there
        ("decision_type", "14"),
        ("threshold", "nan"),
        ("leaf_value", "1e400"),
        ("split_feature", "4"),
    ],
)
def test_a_value_that_lightgbm_would_not_survive_or_not_mean_is_refused(text: str, field: str, value: str) -> None:
    line = next(line for line in text.split("\n") if line.startswith(f"{field}="))
    attack = text.replace(line, f"{field}={' '.join([value, *line.partition('=')[2].split(' ')[1:]])}", 1)
    with pytest.raises(ValueError, match="tree 0 is damaged"):
        read_trees(attack, FEATURES)


def test_branches_that_meet_are_refused(text: str) -> None:
    """Each split would double the paths: with a few dozen of them nobody could walk all."""
    meeting = {"left_child": "1 2 3 4 5 -1", "right_child": "1 2 3 4 5 -2"}
    attack = text
    for field, value in meeting.items():
        line = next(line for line in text.split("\n") if line.startswith(f"{field}="))
        attack = attack.replace(line, f"{field}={value}", 1)
    with pytest.raises(ValueError, match="leads to"):
        read_trees(attack, FEATURES)


def test_what_is_read_predicts_bit_by_bit_what_was_written(booster: lightgbm.Booster) -> None:
    x = np.random.default_rng(1).random((500, FEATURES))
    x[::7, 2] = np.nan
    forest = fit_forest(x[:, :3], x[:, 0], None, np.zeros(3, dtype=np.int8), seed=2)
    for made, rows in ((booster, x), (forest, x[:, :3])):
        again = read_trees(made.model_to_string(), rows.shape[1])
        np.testing.assert_array_equal(again.predict(rows), made.predict(rows))
