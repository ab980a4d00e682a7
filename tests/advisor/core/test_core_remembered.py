"""What is remembered is found again, bounded, and the longest unused is dropped first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.placement.decision import recommend
from advisor.prediction.active import KEY_BYTES, MOST_PARTS, PredictionCache
from tests.advisor.core.core_clouds import ask, cloud, context, host, request, vm
from tests.examples import examples

ROW = 2 * 3 * 8 + KEY_BYTES  # bytes of a block here with its key


def blocks(*values: float) -> np.ndarray:
    return np.array([np.full((2, 3), value) for value in values])


def keys(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


def test_nothing_is_known_at_first_and_afterwards_a_copy_of_what_was_kept() -> None:
    memory = PredictionCache()
    after = memory.after
    known, found = after.find(keys("ab"), (2, 3))
    assert not known.any()
    assert np.isnan(found).all()
    after.keep(keys("ab"), blocks(1.0, 2.0))
    for _ in range(2):
        known, found = after.find(keys("bca"), (2, 3))
        assert known.tolist() == [True, False, True]
        np.testing.assert_array_equal(found[known], blocks(2.0, 1.0))
        assert np.isnan(found[1]).all()
        found[:] = 7.0
    assert not memory.before.find(keys("a"), (2, 3))[0].any()


def test_the_longest_unused_is_dropped_first() -> None:
    after = PredictionCache(3 * ROW).after
    after.keep(keys("abc"), blocks(1.0, 2.0, 3.0))
    after.find(keys("ac"), (2, 3))
    after.keep(keys("d"), blocks(4.0))
    known, found = after.find(keys("abcd"), (2, 3))
    assert known.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(found[known], blocks(1.0, 3.0, 4.0))


def test_more_than_there_is_room_for_is_kept_as_far_as_it_goes() -> None:
    after = PredictionCache(2 * ROW).after
    after.keep(keys("abc"), blocks(1.0, 2.0, 3.0))
    assert after.find(keys("abc"), (2, 3))[0].tolist() == [True, True, False]
    assert len(after) == 2


def test_blocks_of_another_shape_start_anew() -> None:
    after = PredictionCache().after
    after.keep(keys("a"), blocks(1.0))
    after.keep(keys("b"), np.ones((1, 4, 3)))
    assert not after.find(keys("a"), (2, 3))[0].any()
    assert after.find(keys("ab"), (4, 3))[0].tolist() == [False, True]


def test_the_blocks_lie_where_they_lay_however_many_there_come_to_be() -> None:
    after = PredictionCache(1000 * ROW).after
    after.keep(keys("a"), blocks(0.0))
    there = after._values
    for turn in range(2000):
        after.keep([b"%d" % turn], blocks(turn))
    assert after._values is there
    after.keep(keys("a"), np.ones((1, 4, 3)))
    assert np.shares_memory(after._values, there)
    assert len(after) == 1


def test_candidates_take_room_by_what_they_hold() -> None:
    neighbours = [vm(f"r{number}", on="h1") for number in range(20)]
    many, few = (ask(cloud([host(pcpus=64, memory_mb=1e6)], there), request()).candidates for there in (neighbours, []))
    cache = PredictionCache().candidates
    for number in range(MOST_PARTS):
        cache.keep(b"%d" % number, few)
    most = len(cache)
    for number in range(MOST_PARTS):
        cache.keep(b"m%d" % number, many)
    assert len(cache) < most / 5


def test_a_question_leaves_keys_of_one_length_whatever_it_names() -> None:
    memory = PredictionCache()
    there = cloud([host("a", pcpus=1)], [vm("r", on="a", min_throughput_ratio=0.7)])
    for number in range(9):
        asked = request(hosts=("a", *(f"elsewhere-{name}" for name in range(number))))
        (mended,) = recommend(there, context(remembered=memory), asked).candidates
        assert mended.changes
    lengths = {len(key) for kind in (memory.before, memory.after, memory.shown) for key in kind._row}
    assert lengths <= {32, 48, 64}
    assert {len(key) for key in memory.candidates._values} == {16}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), min_size=1, max_size=12),
    st.integers(1, 8),
)
def test_what_is_known_is_always_what_was_kept_under_that_key(turns: list[list[int]], room: int) -> None:
    after = PredictionCache(room * ROW).after
    for turn in turns:
        names = [str(one).encode() for one in turn]
        known, found = after.find(names, (2, 3))
        np.testing.assert_array_equal(found[known], blocks(*turn)[known])
        new = [at for at in range(len(turn)) if not known[at]]
        after.keep([names[at] for at in new], blocks(*turn)[new])
        assert len(after) <= room


def test_threads_share_it() -> None:
    after = PredictionCache(5 * ROW).after
    wrong = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(200):
            turn = random.permutation(9)[:4]
            names = [str(one).encode() for one in turn]
            known, found = after.find(names, (2, 3))
            if (found[known] != blocks(*turn.astype(float))[known]).any():
                wrong.append(turn)
            after.keep(names, blocks(*turn.astype(float)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong
