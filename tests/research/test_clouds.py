"""Clouds of measured hosts: worlds, streams, rules of thumb, and what is reported of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest

from advisor.scheduling.scoring import OTHERS_COUNT
from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction
from profiler.observed import Colocation, Host, Instance, IsolationSettings, Outcome, Pinning
from research.arena.contest import interval
from research.arena.measured_advice import CotenantPolicy, name_of
from research.arena.measured_clouds import FULL, PART, Offer, SituationChoice, arrivals, fill
from research.arena.measured_hosts import (
    MeasuredSet,
    MeasuredWorld,
    NoWorldError,
    Situation,
    at_most_alone,
    halves,
    worlds,
)
from research.arena.measured_policies import LowestPolicy, oracles, rules, worst_kept
from research.benchmarks import placement

RANDOM = np.random.default_rng(0)
HOST = Host("lab", "lxc", pcpus=2, memory_mb=1000.0, platform="lab")
CPU = {"a": 100.0, "b": 40.0, "c": 20.0, "d": 5.0}


def world(seats: int = 2, **measured: tuple[float, ...]) -> MeasuredWorld:
    """Four workloads on one CPU; pairs share it fairly, and what is named is measured otherwise (`a_b=(0.9, 1)`)."""
    found: dict[tuple[str, ...], MeasuredSet] = {
        together: MeasuredSet(tuple(min(1.0, 100 / (CPU[one] + CPU[other])) for _ in together), 0.0)
        for together in combinations_with_replacement(CPU, 2)
        for one, other in [together]
    }
    found |= {tuple(name.split("_")): MeasuredSet(ratios, 0.0) for name, ratios in measured.items()}
    instances = {name: Instance(name, workload=name) for name in CPU}
    profiles = tuple(
        WorkloadProfile(name, {"cpu": cpu, "rss_mb": 10 * at}, "lab")
        for at, (name, cpu) in enumerate(CPU.items(), start=1)
    )
    return MeasuredWorld("same CPU", HOST, ("0:0",) * seats, found, instances, profiles)


def triples_of(names: Iterable[str]) -> Iterator[Situation]:
    return combinations_with_replacement(names, 3)


def offer(*hosts: Situation) -> Offer:
    first = {one: at for at, one in reversed(list(enumerate(hosts)))}
    return Offer(first, {one: hosts.count(one) for one in first})


def run(
    platform: str, ratios: dict[str, float], pins: Sequence[str], repeat: str = "1", load: float = 1.0
) -> Colocation:
    outcomes = tuple(
        Outcome(
            Instance(f"{name}.{at}", workload=name, load=load, settings=IsolationSettings(pinning=Pinning.parse(pin))),
            "throughput", 1.0, ratio, "1/s",
        )
        for at, ((name, ratio), pin) in enumerate(zip(ratios.items(), pins, strict=True))
    )  # fmt: skip
    return Colocation("+".join(ratios), platform, repeat, outcomes)


def dataset(*colocations: Colocation) -> Dataset:
    return Dataset(
        name="made-up", origin="simulated", path=Path("x"), fingerprint="", meta={},
        platforms={"lab": HOST, "other": HOST}, profiles=world().profiles, colocations=colocations,
    )  # fmt: skip


def test_a_world_holds_the_means_of_what_was_measured_plainly_on_one_platform() -> None:
    (found,) = worlds(
        dataset(
            run("lab", {"a": 0.5, "b": 0.9}, ("0:0", "0:1")),
            run("lab", {"b": 0.7, "a": 0.6}, ("0:0", "0:1"), repeat="2"),
            run("lab", {"a": 0.1, "b": 0.1}, ("0:0", "0:1"), load=0.5),
            run("other", {"a": 0.1, "b": 0.2}, ("0:0", "0:0")),
            run("lab", {"a": 0.4, "c": 0.9}, ("0:0", "0:1")),
            run("lab", {"b": 0.4, "c": 0.9}, ("0:0", "0:1")),
        )
    )
    assert found.name == "different CPUs"
    assert found.pins == ("0:0", "0:1")
    assert found.measured["a", "b"].ratios == pytest.approx((0.55, 0.8))
    assert found.measured["a", "b"].error == pytest.approx(0.05)
    assert found.after(("a",), "a") is None, "a beside a was never measured"


def test_halves_share_no_repeat_and_hold_what_was_repeated() -> None:
    repeats = ((0.5, 0.7), (0.9, 0.9), (0.7, 0.9))
    w = world()
    w = replace(w, measured={("a", "b"): MeasuredSet.of(repeats), ("a", "c"): MeasuredSet.of(repeats[:1])}, _after={})
    assert w.measured["a", "b"].ratios == pytest.approx((0.7, 2.5 / 3))
    parts = halves(w)
    assert parts is not None
    assert [one.measured["a", "b"].ratios for one in parts] == [pytest.approx((0.6, 0.8)), (0.9, 0.9)]
    assert all(one.after(("a",), "c") is None for one in parts)
    assert halves(world()) is None


def test_who_is_faster_than_alone_counts_as_alone_where_that_is_asked() -> None:
    capped = at_most_alone(world(a_b=(0.5, 1.4)))
    assert capped.ratios(("a", "b")) == (0.5, 1.0)
    assert capped.ratios(("a", "a")) == (0.5, 0.5)


def test_larger_sets_make_a_world_of_their_own_and_pairs_keep_theirs() -> None:
    pairs = [run("lab", {one: 0.5, other: 0.9}, ("0:0", "0:0")) for one, other in ("ab", "ac", "bc")]
    two, three = worlds(dataset(*pairs, run("lab", {"a": 0.3, "b": 0.3, "c": 0.4}, ("0:0",) * 3)))
    assert (two.seats, three.seats) == (2, 3)
    assert two.after(("a", "b"), "c") is None
    assert three.after(("a", "b"), "c") == ("a", "b", "c")
    assert three.ratios(("a", "b", "c")) == (0.3, 0.3, 0.4)


def test_a_dataset_with_few_of_its_pairs_makes_no_world() -> None:
    with pytest.raises(NoWorldError, match="1 of 3 pairs of 2 workloads"):
        list(worlds(dataset(run("lab", {"a": 0.5, "b": 0.9}, ("0:0", "0:0")))))


def test_a_stream_fills_seats_only_with_what_was_measured_and_opens_a_host_where_nothing_was() -> None:
    w = world()
    only = replace(w, measured={("a", "b"): MeasuredSet((0.5, 0.9), 0.0)}, _after={})
    events = "aabb"
    filled = fill(only, 1, events, rules(w)["first fit"], 0)
    assert filled.hosts == (("a", "b"), ("a", "b"))


def test_the_lowest_host_of_a_situation_is_offered_after_any_history() -> None:
    w = world()

    class Checked:
        def __init__(self) -> None:
            self.asked = 0
            self.hosts: list[Situation] = [()] * 12

        def choose(self, offered: Offer, workload: str, random: np.random.Generator) -> SituationChoice:
            self.asked += 1
            assert all(self.hosts[at] == one for one, at in offered.first.items())
            assert all(self.hosts.index(one) == at for one, at in offered.first.items())
            assert all(self.hosts.count(one) == offered.count[one] for one in offered.first)
            choice = list(offered.first)[int(random.integers(len(offered.first)))]
            after = w.after(choice, workload)
            assert after is not None
            self.hosts[offered.first[choice]] = after
            return SituationChoice(choice)

    checked = Checked()
    fill(w, 12, arrivals(w.workloads, 24, seed=1), checked, 1)
    assert checked.asked == 24


def test_rules_of_thumb_choose_as_they_are_named() -> None:
    w = world()
    hosts = offer(("d",), ("a",), ("b",), ())
    policies = rules(w, settings=True)
    best = {
        "first fit": ("d",),
        "best fit": ("d",),  # the first of those with one vCPU promised
        "fewest instances": (),
        "fewest vCPUs": (),
        "Nova's weighers": (),
        "least loaded": (),
        "best fit to 100%": ("b",),  # 40 and 20 of 100 leave least; 100 and 20 do not fit
        "best fit to 120%": ("a",),
        "least loaded, rss_mb x 2": (),
    }
    assert {name: policies[name].choose(hosts, "c", RANDOM).situation for name in best} == best
    full = offer(("a",), ("b",), ("d",))
    chosen = {name: policies[name].choose(full, "a", RANDOM).situation for name in ("least loaded", "best fit to 100%")}
    assert chosen == {"least loaded": ("d",), "best fit to 100%": ("d",)}
    assert policies["Nova's weighers"].choose(full, "c", RANDOM).situation == ("a",)  # 10 MB, others more


def test_random_draws_hosts_not_situations() -> None:
    w = world()
    hosts = offer(*[()] * 9, ("a",))
    chosen = [rules(w)["random"].choose(hosts, "c", RANDOM).situation for _ in range(500)]
    assert 400 < chosen.count(()) < 490


def test_rules_that_need_an_unmeasured_metric_are_left_out() -> None:
    bare = replace(world(), profiles=tuple(WorkloadProfile(name, {"solo_runtime_s": 1.0}) for name in CPU))
    assert {"least loaded", "best fit to 100%"}.isdisjoint(rules(bare, settings=True))


def test_the_oracle_takes_what_gains_most_and_what_harms_the_worst_off_least() -> None:
    w = world(a_b=(0.6, 1.0), a_c=(0.9, 0.9), a_d=(0.75, 0.95))
    hosts = offer(("b",), ("c",), ("d",))
    assert oracles(w)["oracle (total)"].choose(hosts, "a", RANDOM).situation == ("c",)
    w = world(a_b=(0.6, 1.3), a_c=(0.8, 0.9))
    hosts = offer(("b",), ("c",))
    assert oracles(w)["oracle (total)"].choose(hosts, "a", RANDOM).situation == ("b",)
    assert oracles(w)["oracle (worst)"].choose(hosts, "a", RANDOM).situation == ("c",)
    assert oracles(w)["oracle (pack)"].choose(offer((), ("c",), ("d",)), "b", RANDOM).situation == ("c",)


def test_worst_kept_counts_what_was_lost_and_not_what_was_slow_before() -> None:
    assert worst_kept({"x": 0.5}, {"x": 0.5, "new": 0.8}) == pytest.approx(0.8)
    assert worst_kept({"x": 1.0}, {"x": 0.5, "new": 0.8}) == pytest.approx(0.5 - OTHERS_COUNT * 0.2)


@pytest.mark.parametrize("objective", ["worst", "total", "limits", "pack"])
@pytest.mark.parametrize("seats", [2, 3])
def test_one_host_per_situation_has_the_whole_clouds_answer(objective: str, seats: int) -> None:
    triples = {"_".join(there): (0.4, 0.5 + 0.01 * at, 0.6) for at, there in enumerate(triples_of(CPU))}
    w = world(seats, **(triples if seats == 3 else {}))
    advised, whole = (CotenantPolicy(w, PriorPredictor(), objective) for _ in range(2))  # type: ignore[arg-type]
    asked = 0

    class Both:
        def choose(self, offered: Offer, workload: str, random: np.random.Generator) -> SituationChoice:
            nonlocal asked
            choice = advised.choose(offered, workload, random)
            (first,) = whole.ask(hosts, workload).candidates
            assert first.host == name_of(offered.first[choice.situation])
            tied = {hosts[int(name[1:])] for name in first.tied_with} - {choice.situation}
            assert tied == choice.tied & offered.first.keys() - {choice.situation}
            after = w.after(choice.situation, workload)
            assert after is not None
            hosts[offered.first[choice.situation]] = after
            asked += 1
            return choice

    for seed in range(2):
        hosts: list[Situation] = [()] * 7
        fill(w, 7, arrivals(w.workloads, 13, seed), Both(), seed)
    assert asked == 26


def test_a_question_is_answered_by_the_model_of_its_new_vm_about_every_host() -> None:
    asked: dict[str, list[str]] = {}

    class Noting(PriorPredictor):
        def __init__(self, new_vm: str) -> None:
            self.new_vm = new_vm

        def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
            there = scenes.profile[:, -1][scenes.present.all(axis=1)]
            asked.setdefault(self.new_vm, []).extend(scenes.table.names[row] for row in there)
            return super().predict(scenes, targets)

    w = world()
    policy = CotenantPolicy(w, {name: Noting(name) for name in w.workloads}, "worst")
    fill(w, 7, arrivals(w.workloads, 14, 0), policy, 0)
    assert set(asked) == set(w.workloads)
    assert all(set(new_vms) == {name} for name, new_vms in asked.items())


def test_the_interval_of_a_mean_holds_it_and_one_value_has_none() -> None:
    ends = interval([1.0, 2.0, 3.0, 10.0])
    assert ends is not None
    assert 1.0 <= ends[0] < 4.0 < ends[1] <= 10.0
    assert interval([1.0]) is None


def test_a_dataset_that_is_not_there_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert placement.main([str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"{tmp_path / 'none'} is not a dataset")
    assert placement.main([str(tmp_path), "--chart", "out.txt"]) == 1
    assert "neither .png nor .svg" in capsys.readouterr().err


def test_a_dataset_that_makes_no_world_is_left_out_with_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = dataset(run("lab", {"a": 0.5, "b": 0.9}, ("0:0", "0:0")))
    monkeypatch.setattr(placement, "load_dataset", lambda _path: sparse)
    assert placement.of_dataset(Path("x"), 4, range(2)) == []
    assert "too few for hosts to choose from" in capsys.readouterr().err


def test_a_lowest_key_is_asked_once_for_each_situation() -> None:
    asked: list[tuple[Situation, str]] = []

    def key(situation: Situation, workload: str) -> tuple[float, ...]:
        asked.append((situation, workload))
        return (0.0,)

    policy = LowestPolicy(key)
    for _ in range(3):
        policy.choose(offer((), ("a",)), "b", RANDOM)
    assert sorted(asked) == [((), "b"), (("a",), "b")]


def test_the_placement_table_and_its_picture_hold_every_column_at_both_loads(tmp_path: Path) -> None:
    rows = list(placement.of_world("made-up", world(), PriorPredictor(), hosts=6, streams=range(3)))
    assert [(row.load, row.figure) for row in rows] == [
        (load.name, figure)
        for load in (PART, FULL)
        for figure in (placement.VIOLATIONS, placement.WORST_REGRET, placement.CAPPED_REGRET, placement.REGRET)
    ]
    for row in rows:
        assert tuple(row.values) == placement.COLUMNS
        assert row.values["learned"] == row.values["prior"]  # the model is the prior here
        assert all(len(each) == 3 for each in row.values.values())
    assert all(set(row.values["oracle"]) == {0.0} for row in rows if row.figure != placement.VIOLATIONS)
    text = "\n".join(placement.tables(rows))
    assert text.count("| made-up |") == 8
    assert rows[1].rule in text
    placement.picture(rows, tmp_path / "out.svg")
    drawn = (tmp_path / "out.svg").read_text()
    assert all(
        name in drawn for name in ("least loaded", "oracle", "made-up, full", placement.DRAWN[placement.VIOLATIONS])
    )


@pytest.mark.parametrize(
    ("learned", "apart"),
    [((2.9, 1.2, 2.0), False), ((1.0, 1.2, 1.1), True), ((6.0, 6.2, 6.1), True)],
    ids=["holds 0", "better", "worse"],
)
def test_a_difference_whose_interval_holds_0_decides_nothing(learned: tuple[float, ...], apart: bool) -> None:
    values = {"prior": (2.0, 2.1, 2.0), "learned": learned}
    text = "\n".join(placement.tables([placement.PlacementRow("f", "w", "full", "", values)]))
    assert ("not significant" not in text) == apart


@pytest.mark.parametrize(
    ("learned", "met"), [((1.0, 1.2, 1.1), "met "), ((6.0, 6.2, 6.1), "MISS")], ids=["near the oracle", "far from it"]
)
def test_an_aim_of_the_placement_is_met_or_missed_as_the_figures_say(learned: tuple[float, ...], met: str) -> None:
    others = {"prior": (2.0, 2.1, 2.0), "first fit": (5.0, 5.5, 5.2), "oracle": (0.0, 0.0, 0.0)}
    values = {"learned": learned, **others}
    figures = (placement.REGRET, placement.VIOLATIONS)
    reported = placement.aims([placement.PlacementRow(figure, "w", "full", "", values) for figure in figures])
    assert len(reported) == 4
    about = {word: line for line in reported for word in ("at most 3 % of regret to the oracle:", "first fit beyond",
             "prior beyond", "first fit's removed") if word in line}  # fmt: skip
    assert [line[:4] for line in about.values()] == [met] * 4
