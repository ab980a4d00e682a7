"""What sizes alone let in: first fit against a plain count, and a bound that no packing surpasses."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory
from advisor.planning.capacity import first_fit, free_room, repeat_mix, size_bound
from advisor.snapshot import ClusterSnapshot
from tests.advisor.planning.planning_cases import NOW
from tests.examples import examples

SIZES = st.tuples(st.integers(1, 4), st.integers(0, 5))
ROOMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=3)


def packed(rooms: list[tuple[int, int]], mix: list[Instance], number: int = 0) -> int:
    """The most of the mix in turn that any packing lets in, by trying every host for each."""
    one = mix[number % len(mix)]
    best = number
    for at, (vcpus, memory) in enumerate(rooms):
        if one.vcpus <= vcpus and one.memory_mb <= memory:
            rest = [*rooms[:at], (vcpus - one.vcpus, memory - int(one.memory_mb)), *rooms[at + 1 :]]
            best = max(best, packed(rest, mix, number + 1))
    return best


@given(ROOMS, st.lists(SIZES, min_size=1, max_size=2))
@settings(max_examples=examples(60), deadline=None)
def test_first_fit_is_a_packing_and_the_bound_is_one_for_all(
    rooms: list[tuple[int, int]], sizes: list[tuple[int, int]]
) -> None:
    mix = [Instance(f"m{number}", vcpus, float(memory)) for number, (vcpus, memory) in enumerate(sizes)]
    left = np.array([(vcpus, vcpus, memory, np.inf, np.inf) for vcpus, memory in rooms], dtype=np.float64)
    best = packed(rooms, mix)
    assert first_fit(left, mix) <= best <= size_bound(left, mix)
    if len(mix) == 1:
        assert first_fit(left, mix) == best == size_bound(left, mix)


def test_a_host_is_filled_to_the_room_that_its_overcommit_gives_in_decimals() -> None:
    """45 x 1.4 is 63, and three times 0.1 is 0.3, though neither is so in binary fractions."""
    for there, one, fit in (
        (Host("h", "kvm", 45, 1e6, cpu_overcommit=1.4), Instance("m", 21), 3),
        (Host("h", "kvm", 45, 1e6, cpu_overcommit=9.0, disk_gb=0.3), Instance("m", 1, disk_gb=0.1), 3),
        (Host("h", "kvm", 45, 65_536.0, cpu_overcommit=99.0, memory_overcommit=1.15), Instance("m", 1, 75_366.4), 1),
    ):
        left = free_room(ClusterSnapshot.build(Inventory((there,)), seen={}, pending=(), taken_at=NOW), None)
        assert first_fit(left, [one]) == size_bound(left, [one]) == fit


def test_more_of_a_mix_have_names_of_their_own() -> None:
    mix = [Instance("a" * 250), Instance("b")]
    taken = frozenset({"b.more-2"})
    names = [one.id for one, _ in zip(repeat_mix(mix, taken), range(4), strict=False)]
    assert len(set(names) - taken) == 4
    assert max(len(name) for name in names) <= 255
