"""Training from windows: hosts whose instances get more than the prior says, by a rule that can be learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models import training
from models.data.dataset import Dataset, load_dataset
from models.data.scene import ProfileTable, build_batch
from models.data.window_dataset import NATURAL_EXPERIMENT, SharedWindow, sampled, write_windows
from models.evaluation.gate import gate
from models.features.examples import Examples, build_examples, contended, host_folds, newest_fold, weighted
from models.learning import artifact
from models.learning.fitting import fit_target
from models.learning.learned_predictor import LearnedPredictor
from models.physics.prior import PriorPredictor
from models.training import fit_predictor
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings
from tests.models.made_models import limit_trees
from tests.models.synthetic import World

HOSTS, WINDOWS, VMS = 12, 14, 3
GAINED = 0.75  # the power of the prior's share that instances get


def wanting(name: str, cpus: float, **more: object) -> Instance:
    demand = {"cpu": Demand(cpus, common=0.0, windows=1.0, origin="measured")}
    return Instance(name, vcpus=2, demand=demand, load=1.0, **more)  # type: ignore[arg-type]


def bursting(one: Instance, of_ms: float) -> Instance:
    return replace(one, demand={"cpu": replace(one.demand["cpu"], burst_ms=of_ms)})


def scenes(seed: int = 0) -> list[tuple[Host, tuple[Instance, ...], float]]:
    random = np.random.default_rng(seed)
    found = []
    for window in range(WINDOWS):
        for host in range(HOSTS):
            busy = 0.02 + 0.9 * random.random()  # shares from a few hundredths to 1
            there = tuple(
                wanting(f"h{host}-vm{at}", min(float(random.gamma(8.0, busy / 8)) + 0.05, 1.9)) for at in range(VMS)
            )
            found.append((Host(f"h{host}", "kvm", pcpus=2, memory_mb=1e4), there, 300.0 * (window + 1)))
    return found


def learned_from() -> list[SharedWindow]:
    made, random = scenes(), np.random.default_rng(1)
    batch = build_batch([(host, there) for host, there, _ in made], ProfileTable.build(()))
    said = PriorPredictor().predict(batch, ()).throughput.expected ** GAINED
    noisy = np.clip(said * np.exp(random.normal(0, 0.02, said.shape)), 0.01, 1.0)
    return [
        SharedWindow(host, there, {one.id: float(noisy[at, slot]) for slot, one in enumerate(there)}, ends_s)
        for at, (host, there, ends_s) in enumerate(made)
    ]


def dataset_of(windows: Sequence[SharedWindow], folder: Path) -> Path:
    folder.mkdir()
    write_windows(folder, "windows", windows)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _one_booster() -> Iterator[None]:
    """Several differ by their seeds alone, and take that much longer."""
    with pytest.MonkeyPatch.context() as patch:
        limit_trees(patch, trees=None, boosters=1)
        yield


@pytest.fixture(scope="module")
def windows() -> list[SharedWindow]:
    return learned_from()


@pytest.fixture(scope="module")
def measured(windows: list[SharedWindow], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(dataset_of(windows, tmp_path_factory.mktemp("made") / "windows"))


@pytest.fixture(scope="module")
def examples(measured: Dataset) -> Examples:
    return build_examples([measured], (), target="share")


@pytest.fixture(scope="module")
def model(measured: Dataset) -> LearnedPredictor:
    return fit_predictor([measured])


def test_a_dataset_of_windows_says_what_was_measured(windows: list[SharedWindow], tmp_path: Path) -> None:
    capped = replace(windows[0].instances[0], settings=IsolationSettings(cap_percent=150.0, weight=512))
    first = replace(windows[0], instances=(capped, *windows[0].instances[1:]))
    shares = {name: share for name, share in first.shares.items() if name != capped.id}
    found = load_dataset(dataset_of([replace(first, shares=shares)], tmp_path / "one")).colocations
    assert [replace(one.instance, workload=None) for one in found[0].outcomes] == list(first.instances)
    assert {one.instance.id: one.colocated for one in found[0].outcomes} == {**first.shares, capped.id: None}
    assert found[0].ends_s == first.ends_s


def test_a_dataset_of_windows_keeps_which_cpus_share_a_core(tmp_path: Path) -> None:
    host = Host("h", "kvm", 6, 1024.0, cpu_ids=(0, 1, 2, 3, 8, 9), siblings=((0, 1), (8, 9)))
    made = SharedWindow(host, (wanting("a", 1.0), wanting("b", 1.0)), {"a": 1.0, "b": 1.0}, 300.0)
    found = load_dataset(dataset_of([made], tmp_path / "one")).platforms["h"]
    assert found.cores == host.cores == (0, 0, 2, 3, 4, 4)


def test_steady_company_counts_once_and_a_change_of_it_thrice() -> None:
    host = Host("h", "kvm", pcpus=2, memory_mb=1.0)
    steady = [SharedWindow(host, (wanting("a", 1.0), wanting("b", 1.0)), {}, 300.0 * at) for at in range(4)]
    alone = SharedWindow(host, (wanting("a", 1.0),), {}, 1500.0)
    assert [one.importance for one in sampled([*steady, alone])] == [0.25, 0.25, 0.25, 0.25, NATURAL_EXPERIMENT]


def test_of_many_windows_the_contended_stay_and_a_part_of_the_calm_stands_for_all() -> None:
    host = Host("h", "kvm", pcpus=2, memory_mb=1.0)
    made = [
        SharedWindow(host, (wanting("a", 0.1 + at / 1000), wanting("b", 1.0)), {"a": share, "b": share}, 300.0 * at)
        for at, share in enumerate([1.0] * 900 + [0.5] * 20 + [0.85] * 10)
    ]
    chosen = sampled(made, most_shares=100)
    by_share = {share: [one for one in chosen if one.window.shares["a"] == share] for share in (1.0, 0.5, 0.85)}
    assert {share: len(some) for share, some in by_share.items()} == {1.0: 50, 0.5: 20, 0.85: 10}
    unchanged = sampled(made)
    for share, some in by_share.items():
        whole = sum(one.importance for one in unchanged if one.window.shares["a"] == share)
        assert sum(one.importance for one in some) == pytest.approx(whole, rel=0.35)
    assert sampled(reversed(made), most_shares=100) == chosen


def test_contended_rows_count_as_much_as_calm_ones_together(examples: Examples) -> None:
    calm = replace(examples, base=np.where(np.arange(len(examples)) % 10 > 0, 1.0, examples.base))
    calm = replace(calm, ratio=np.where(np.arange(len(examples)) % 10 > 0, 1.0, calm.ratio))
    several = calm.take(np.tile(np.arange(len(calm)), 8))
    chosen = weighted(several)
    short = contended(chosen)
    assert short.sum() == contended(several).sum()
    assert len(chosen) < len(several)
    assert chosen.importance[short].sum() == pytest.approx(chosen.importance[~short].sum())
    assert len(chosen.key) == len(chosen.importance) == len(chosen)


def test_no_instance_is_on_both_sides_of_a_fold(examples: Examples) -> None:
    moved = replace(examples, victim=tuple("h0-vm0" if one == "h1-vm0" else one for one in examples.victim))
    older, newest = newest_fold(moved)
    assert examples.ends_s[older].max() < examples.ends_s[newest].min()
    assert 0.1 < len(newest) / len(moved) < 0.25
    folds = host_folds(moved, older)
    assert sorted(row for _, test in folds for row in test.tolist()) == older.tolist()
    for train, test in folds:
        for of in (moved.pair, moved.victim):
            assert {of[row] for row in train}.isdisjoint(of[row] for row in test)


def test_a_model_says_of_how_many_hosts_its_windows_were(model: LearnedPredictor, tmp_path: Path) -> None:
    assert model.share is not None
    by_host = next(held for held in model.share.held_out if held.protocol == "unseen_host")
    assert model.hosts_of_windows == len(set(by_host.pair)) == HOSTS
    path = artifact.save(tmp_path, model, {})
    assert artifact.load(path).hosts_of_windows == HOSTS


def test_what_instances_get_is_learned_and_answers_for_unseen_hosts(model: LearnedPredictor, tmp_path: Path) -> None:
    assert model.share is not None
    verdict = gate(model.share.held_out, None)
    assert verdict.passed, verdict.refusals
    assert {one.protocol for one in verdict.figures} == {"unseen_host", "newest"}
    assert all(one.error < 0.5 * one.analytic.other for one in verdict.figures)
    read = artifact.load(artifact.save(tmp_path, model, {}))
    other = [(replace(host, id="new"), there) for host, there, _ in scenes(7)[:20]]
    asked = build_batch(other, ProfileTable.build(()))
    reported, prior = read.predict(asked), PriorPredictor().predict(asked).throughput.expected
    truth = prior**GAINED
    assert np.abs(reported.throughput.expected - truth).mean() < 0.5 * np.abs(prior - truth).mean()
    assert not reported.outside.any()
    assert (reported.throughput.expected == model.predict(asked).throughput.expected).all()
    unsure = [
        (host, tuple(replace(one, demand={"cpu": replace(one.demand["cpu"], doubt=0.3)}) for one in there))
        for host, there in other
    ]
    doubted = read.predict(build_batch(unsure, ProfileTable.build(()))).throughput
    assert (doubted.upper - doubted.lower > reported.throughput.upper - reported.throughput.lower - 1e-9).all()
    assert (doubted.lower < reported.throughput.lower - 0.01).any()  # less evidence is a wider interval
    unknown = build_batch([(other[0][0], (Instance("x", vcpus=2), Instance("y", vcpus=2)))], ProfileTable.build(()))
    assert read.predict(unknown).outside.all()  # of instances without known demand, windows say nothing


def test_windows_are_learned_from_beside_tables_of_colocations(
    windows: list[SharedWindow], tmp_path: Path, few_trees: None
) -> None:
    lab, sockets = World(workloads=4).write(tmp_path / "lab"), ((0,), (1,))
    of_two = [replace(one, host=replace(one.host, numa=sockets)) for one in windows]
    found = artifact.load(training.train([dataset_of(of_two, tmp_path / "windows"), lab], tmp_path / "models"))
    assert found.throughput.figures["unseen_pair"]["rows"] > 0
    assert found.share is not None
    assert found.share.figures["unseen_host"]["rows"] + found.share.figures["newest"]["rows"] == HOSTS * WINDOWS * VMS


@pytest.mark.parametrize("shuffled", ["older", "all"])
def test_the_gate_refuses_a_model_of_shuffled_outcomes_though_the_prior_is_worse(
    examples: Examples, shuffled: str
) -> None:
    """In the world where the true outcomes pass above. The prior is off by much, so the mean of all is better."""
    rows = newest_fold(examples)[0] if shuffled == "older" else np.arange(len(examples))
    ratio = examples.ratio.copy()
    ratio[rows] = np.random.default_rng(0).permutation(ratio[rows])
    verdict = gate(fit_target(replace(examples, ratio=ratio), "share").held_out, None)
    by_host = next(one for one in verdict.figures if one.protocol == "unseen_host")
    assert by_host.analytic.high < 0
    of_host = [why for why in verdict.refusals if why.startswith("share, unseen_host")]
    assert any("no better beyond noise" in why for why in of_host)


def test_an_instance_with_longer_bursts_gets_another_share(tmp_path: Path) -> None:
    random, found = np.random.default_rng(2), []
    for window in learned_from():
        bursts = {one.id: float(random.choice([2.0, 30.0])) for one in window.instances}
        there = tuple(bursting(one, bursts[one.id]) for one in window.instances)
        shares = {name: share ** (1.3 if bursts[name] > 10 else 1.0) for name, share in window.shares.items()}
        found.append(replace(window, instances=there, shares=shares))
    model = fit_predictor([load_dataset(dataset_of(found, tmp_path / "windows"))])
    host, there, _ = next(one for one in scenes(7) if sum(vm.demand["cpu"].mean for vm in one[1]) > 2)
    asked = [(host, tuple(bursting(one, of_ms) for one in there)) for of_ms in (2.0, 30.0)]
    brief, long = model.predict(build_batch(asked, ProfileTable.build(()))).throughput.expected
    assert (np.log(long) < 1.15 * np.log(brief)).all()


def test_a_new_vm_on_the_fullest_host_is_answered_by_what_windows_taught_and_many_more_are_less_sure(
    examples: Examples, model: LearnedPredictor
) -> None:
    """A new VM is always one more than were there; no number makes all that was learned worth nothing."""
    assert set(examples.size.tolist()) == {VMS}
    host = Host("h0", "kvm", pcpus=2, memory_mb=1e4)
    similar = []
    for count in (VMS, VMS + 1, 2 * VMS):
        there = tuple(wanting(f"vm{at}", 2.4 / count) for at in range(count))
        batch = build_batch([(host, there)], ProfileTable.build(()))
        reported, prior = model.predict(batch), PriorPredictor().predict(batch).throughput.expected
        assert reported.basis is not None
        similar.append(float(reported.basis.similar.max()))
        if count <= VMS + 1:
            assert reported.throughput.expected == pytest.approx(prior**GAINED, abs=0.06)
    assert similar[0] > similar[2]
