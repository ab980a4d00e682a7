"""What instances whose demand is known teach about the others of their cloud."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.cloud_classes import LEAST_KNOWN, WEEK, CloudClasses, completed
from models.data.demand_classes import day_of, day_one
from profiler.demand import Demand
from profiler.observed import Instance


def seen(name: str, mean: float, *, vcpus: int = 2, **labels: str) -> Instance:
    """An instance whose demand was measured."""
    return Instance(name, vcpus, labels=labels, demand={"cpu": Demand(mean, windows=100, origin="measured")})


SHOP = [seen(f"web-{number}", 1.2 + number / 20, project="shop", image="debian") for number in range(8)]
BATCH = [seen(f"idle-{number}", 0.02 + number / 1000, project="batch", image="alpine") for number in range(8)]


def test_an_instance_is_taken_to_be_like_those_that_share_most_with_it() -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])
    reported = {name: classes.demand_of(Instance(name, 2)) for name in ("web-99", "other", "idle-99")}
    means = [one.mean for one in reported.values() if one is not None]
    assert means == sorted(means, reverse=True)
    web = reported["web-99"]
    assert web is not None
    assert 0.8 < web.mean < 1.8
    assert web.origin == "class"
    assert web.doubt / web.mean < day_one(2).doubt / day_one(2).mean


@pytest.mark.parametrize("labels", [{"project": "shop"}, {"image": "debian"}, {"name": "web-1000"}])
def test_labels_tell_what_an_instance_is_like(labels: dict[str, str]) -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])
    like, other = (classes.demand_of(Instance("x", 2, labels=one)) for one in (labels, {}))
    assert like is not None
    assert other is not None
    assert like.mean > other.mean


OFFICE = tuple(2.0 if 9 <= hour < 17 else 0.5 for hour in range(24))
NIGHT = tuple(2.0 if 1 <= hour < 9 else 0.5 for hour in range(24))


def of_a_day(name: str, hours: tuple[float, ...], windows: int = 8 * WEEK) -> Instance:
    return Instance(name, 2, demand={"cpu": Demand(1.0, windows=windows, origin="measured", hours=hours)})


def test_a_new_vm_is_expected_to_have_the_day_of_those_that_it_is_like() -> None:
    known = [of_a_day(f"web-{number}", OFFICE) for number in range(6)]
    known += [of_a_day(f"backup-{number}", NIGHT * 7) for number in range(6)]
    classes = CloudClasses.of(known)
    web, backup, other = (classes.demand_of(Instance(name, 2)) for name in ("web-9", "backup-9", "other"))
    assert web is not None and backup is not None and other is not None
    assert web.hours[10] > 1.4 > 0.9 > web.hours[3]
    assert backup.hours[3] > 1.4 > 0.9 > backup.hours[10]
    assert max(other.hours) - min(other.hours) < 0.6 * (max(web.hours) - min(web.hours))


def test_who_was_measured_for_an_hour_and_not_for_a_day_gets_the_day_of_its_class_and_keeps_its_mean() -> None:
    classes = CloudClasses.of([of_a_day(f"web-{number}", OFFICE) for number in range(6)])
    hour = Instance("web-9", 2, demand={"cpu": Demand(0.4, windows=20, origin="measured")})
    found = completed(hour, classes, ()).demand["cpu"]
    assert (found.mean, found.windows, found.origin) == (0.4, 20, "measured")
    assert found.hours[10] > 1.4


def test_a_day_that_was_seen_once_is_completed_by_that_of_the_class_and_a_week_speaks_for_itself() -> None:
    classes = CloudClasses.of([of_a_day(f"web-{number}", OFFICE) for number in range(6)])
    own = of_a_day("web-9", NIGHT, windows=300)
    found = completed(own, classes, ()).demand["cpu"]
    assert sum(found.hours) == pytest.approx(24)
    assert OFFICE[10] > found.hours[10] > own.demand["cpu"].hours[10]
    assert NIGHT[3] > found.hours[3] > 1.0
    week = replace(own, demand={"cpu": replace(own.demand["cpu"], windows=WEEK)})
    assert completed(week, classes, ()) is week


def at_night(name: str, mean: float, windows: int = 12) -> Instance:
    """An instance that was seen from three to four at night."""
    seen_hours = tuple(float(windows) if hour == 3 else 0.0 for hour in range(24))
    demand = Demand(mean, spread=0.1, windows=windows, origin="measured", seen_hours=seen_hours)
    return Instance(name, 2, demand={"cpu": demand})


@pytest.mark.parametrize("windows", [1, 12, 60])
def test_who_was_seen_at_night_only_is_expected_to_be_as_busy_by_day_as_its_kind(windows: int) -> None:
    classes = CloudClasses.of([of_a_day(f"web-{number}", OFFICE) for number in range(6)])
    found = completed(at_night("web-9", 0.5, windows), classes, ()).demand["cpu"]
    assert 0.8 < found.mean < 1.3
    assert found.hours[10] > 1.4 > found.hours[3]
    assert found.doubt > 0.1 * found.mean
    flat = CloudClasses.of([of_a_day(f"web-{number}", (1.0,) * 24) for number in range(6)])
    assert completed(at_night("web-9", 0.5, windows), flat, ()).demand["cpu"].mean < found.mean


def test_the_more_of_the_day_was_seen_the_more_that_counts() -> None:
    classes = CloudClasses.of([of_a_day(f"web-{number}", (1.0,) * 24) for number in range(6)])

    def mean(hours: int) -> float:
        seen_hours = tuple(12.0 if hour < hours else 0.0 for hour in range(24))
        demand = Demand(0.3, spread=0.1, windows=12.0 * hours, origin="measured", seen_hours=seen_hours)
        return completed(Instance("web-9", 2, demand={"cpu": demand}), classes, ()).demand["cpu"].mean

    means = [mean(hours) for hours in (1, 3, 8, 20)]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.4


def test_an_instance_seen_for_part_of_a_day_teaches_nothing_where_others_were_seen_for_whole_days() -> None:
    whole = [of_a_day(f"web-{number}", OFFICE) for number in range(LEAST_KNOWN)]
    came = [at_night(f"web-{number}", 0.1) for number in range(10, 20)]
    alone, beside = CloudClasses.of(whole), CloudClasses.of([*whole, *came])
    assert beside.demand_of(Instance("web-99", 2)) == alone.demand_of(Instance("web-99", 2))
    assert beside.basis(Instance("web-99", 2)) == alone.basis(Instance("web-99", 2))
    assert beside.levels(came[0]) == alone.levels(came[0])
    evening = CloudClasses.of(came).demand_of(Instance("web-99", 2))
    assert evening is not None and evening.mean < 0.5


def test_what_all_of_a_kind_do_counts_for_more_than_what_one_of_them_does() -> None:
    def depth(*days: tuple[float, ...]) -> float:
        classes = CloudClasses.of([
            *(of_a_day(f"web-{at}", one) for at, one in enumerate(days)), *(seen(f"db-{at}", 0.2) for at in range(3))
        ])  # fmt: skip
        found = classes.demand_of(Instance("web-99", 2))
        assert found is not None
        return found.hours[12] - found.hours[4]

    shifted = [OFFICE[at:] + OFFICE[:at] for at in range(0, 24, 4)]
    assert depth(*[OFFICE] * 6) > depth(OFFICE) > depth(*shifted)
    assert depth(*[OFFICE] * 6) > 1.2
    assert depth(*shifted) < 0.3


def test_without_any_day_none_is_predicted_and_no_instance_teaches_itself_its_day() -> None:
    assert day_of(()) == ()
    one = [seen(f"db-{number}", 0.2) for number in range(5)]
    alone = CloudClasses.of([*one, of_a_day("web-1", OFFICE)])
    assert day_of(alone.levels(Instance("web-1", 2))) == ()
    assert CloudClasses.of(one).demand_of(Instance("web-2", 2)).hours == ()  # type: ignore[union-attr]


def test_too_few_say_nothing_of_the_others() -> None:
    classes = CloudClasses.of(SHOP[: LEAST_KNOWN - 1])
    assert classes.demand_of(Instance("web-99", 2)) is None
    assert completed(Instance("web-99", 2), classes, ()) == Instance("web-99", 2)


def test_what_is_known_of_an_instance_beats_its_class() -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])
    for one in (SHOP[0], Instance("web-99", 2, load=0.5), Instance("web-99", 2, workload="shop")):
        assert completed(one, classes, {"shop"}) is one
    assert "cpu" in completed(Instance("web-99", 2, workload="never measured"), classes, {"shop"}).demand


def test_what_was_seen_for_minutes_is_drawn_towards_the_class_the_less_the_longer_it_was_seen() -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])

    def mean(windows: int, name: str = "web-99") -> float:
        seen_now = Demand(0.1, windows=windows, origin="measured")
        return completed(Instance(name, 2, demand={"cpu": seen_now}), classes, ()).demand["cpu"].mean

    means = [mean(windows) for windows in (1, 3, 8, 12)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.15
    assert means[-1] == 0.1
    assert mean(1, "idle-99") < 0.1


def test_what_was_seen_for_minutes_does_not_beat_a_profile_and_does_not_teach_itself() -> None:
    early = Instance("web-99", 2, workload="shop", demand={"cpu": Demand(0.1, windows=2, origin="measured")})
    classes = CloudClasses.of([*SHOP, early])
    assert completed(early, classes, {"shop"}).demand == {}
    assert completed(early, classes, ()) == completed(early, CloudClasses.of(SHOP), ())


def test_without_others_what_was_seen_for_minutes_is_drawn_towards_public_traces() -> None:
    early = Instance("a", 2, demand={"cpu": Demand(2.0, windows=1, origin="measured")})
    found = completed(early, CloudClasses.of([early]), ()).demand["cpu"]
    assert 0.5 < found.mean < 2.0
    assert found.origin == "measured"
    assert found.doubt > 0


def test_a_class_does_not_teach_itself() -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])
    guessed = completed(Instance("web-99", 2), classes, ())
    assert classes.changed({"web-99": guessed}) is classes


def test_an_instance_asked_about_under_other_labels_takes_nothing_from_classes_that_it_never_taught() -> None:
    known = [of_a_day(f"web-{number}", OFFICE) for number in range(4)] + [seen(f"db-{n}", 0.2) for n in range(4)]
    classes = CloudClasses.of([*known, of_a_day("x", NIGHT)])
    asked = Instance("x", 2, labels={"name": "db-9"})
    assert classes.levels(asked) == CloudClasses.of(known).levels(asked)


def test_the_instance_in_question_sees_which_neighbour_leaves() -> None:
    classes = CloudClasses.of([*SHOP, *BATCH])
    basis = classes.basis(Instance("web-99", 2, labels={"project": "shop", "image": "unseen"}))
    assert basis == ((("", ""), 16), (("project", "shop"), 8), (("name", "web"), 8))


def test_classes_are_right_where_those_that_are_alike_are_alike() -> None:
    accuracy = CloudClasses.of([*SHOP, *BATCH]).accuracy
    assert accuracy is not None
    assert accuracy.n == 16
    assert 1.0 < accuracy.factor < 2.0 < accuracy.without
    assert 1.0 < accuracy.nine_in_ten < 2.0
    shuffled = [1.5, 0.02] * 8
    random.Random(1).shuffle(shuffled)
    noise = CloudClasses.of([seen(f"vm-{at}", mean) for at, mean in enumerate(shuffled)]).accuracy
    assert noise is not None
    assert noise.factor > 4.0
    assert noise.nine_in_ten > 4.0


def test_nine_in_ten_of_the_known_were_estimated_within_the_factor_that_is_claimed() -> None:
    known = [seen(f"vm-{at}", mean) for at, mean in enumerate(random.Random(3).choices([0.1, 0.3, 1.0, 1.8], k=40))]
    accuracy = CloudClasses.of(known).accuracy
    assert accuracy is not None
    off = []
    for one in known:  # each from the others, by the public question
        others = CloudClasses.of([other for other in known if other is not one])
        estimated = others.demand_of(replace(one, demand={}))
        assert estimated is not None
        off.append(abs(math.log(estimated.mean / one.demand["cpu"].mean)))
    assert sum(error <= 1.02 * math.log(accuracy.nine_in_ten) for error in off) >= 36
    assert sum(error <= 0.98 * math.log(accuracy.nine_in_ten) for error in off) < 36


@given(
    st.lists(
        st.tuples(st.sampled_from([f"{stem}-{n}" for stem in ("web", "db") for n in range(4)]), st.floats(0, 2)),
        max_size=30,
    )
)
def test_classes_that_followed_every_change_are_those_that_are_made_anew(changes: list[tuple[str, float]]) -> None:
    followed, there = CloudClasses.of(()), dict[str, Instance]()
    for name, mean in changes:
        now = None if mean < 0.2 else seen(name, mean, project=name[:1]) if mean < 1 else of_a_day(name, OFFICE)
        followed = followed.changed({name: now})
        if now is None:
            there.pop(name, None)
        else:
            there[name] = now
    assert followed == CloudClasses.of(there.values())
