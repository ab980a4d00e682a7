"""Hosts that are alike are predicted once and remembered, and the answer is that of asking about every host anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from advisor import mitigation
from advisor.domain import Host, Instance, Pinning, PlacementRequest, Recommendation, WorkloadProfile
from advisor.placement.decision import recommend
from advisor.placement.host_classes import PlacementQuestion
from advisor.placement.screen import headroom_of
from advisor.prediction.active import PredictionCache
from advisor.scheduling import filters, pinning, scoring
from advisor.scheduling.pinning import (
    latency_limits_of,
    limits_of,
    new_vm_slot,
    profile_row,
    short_limits_of,
    used_share,
    without_new_vm,
)
from advisor.scheduling.scoring import EQUAL, NOTICED
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats, Ints
from models.data.dataset import load_dataset
from models.data.scene import stack
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction, Predictor
from models.training import fit_predictor
from tests.advisor.core.core_clouds import (
    FRESH_S,
    NOW,
    WORKLOADS,
    Counting,
    Invented,
    cloud,
    context,
    host,
    request,
    vm,
)
from tests.examples import examples
from tests.models.made_models import limit_trees

LAB = Path(__file__).parents[3] / "datasets" / "lab-neighbours"


def screened(counting: Counting) -> int:
    """Scenes that were asked about since the last time, but for those of the answer itself."""
    found = sum(count for count, targets in counting.asked if targets != set(TARGETS))
    counting.asked.clear()
    return found


def put(
    snapshot: ClusterSnapshot,
    question: PlacementRequest,
    predictor: Predictor,
    remembered: PredictionCache | None = None,
) -> Recommendation:
    answer = recommend(snapshot, context(predictor, remembered), replace(question, explain=False))
    return replace(answer, id="r-1")


@dataclass(frozen=True)
class Plain:
    """A host in the plain answer."""

    host: str
    score: float
    combined: float
    affinity: tuple[int, ...]
    ratios: dict[str, tuple[float, ...]]
    breaks: bool


def plain(snapshot: ClusterSnapshot, asked: PlacementRequest, predictor: Predictor) -> list[Plain]:
    """Every host, every option, everything in one predict; best first."""
    kept, _ = filters.apply(snapshot, asked, fresh_s=FRESH_S)
    if not kept:
        return []
    hosts = np.array(kept)
    table, row, _ = profile_row(snapshot, asked)
    base = without_new_vm(snapshot, asked, hosts, table)
    options = pinning.options(base, asked.instance, [snapshot.hosts[at] for at in kept])
    values = new_vm_slot(base, snapshot, hosts, asked.instance, row)
    absent = base.with_slot(**{**values, "present": np.zeros(len(base), dtype=bool)})
    scenes = stack([absent, *(base.with_slot(**{**values, "affinity": one.affinity}) for one in options)])
    said, count = predictor.predict(scenes), len(hosts)
    after = _without_gains(said.take(slice(count, None)), said.take(slice(count)), len(options))
    before = [
        np.tile(np.where(absent.present, getattr(said, name).expected[:count], 1.0), (len(options), 1))
        for name in ("throughput", "latency")
    ]
    half_before = before[0] - np.tile(np.where(absent.present, said.throughput.lower[:count], 1.0), (len(options), 1))
    short_before = np.tile(np.where(absent.present, said.time_short()[:count], 0.0), (len(options), 1))
    limits, waits, shorts = (
        np.tile(of(snapshot, hosts, asked.instance, scenes.slots), (len(options), 1))
        for of in (limits_of, latency_limits_of, short_limits_of)
    )
    used = np.tile(used_share(snapshot, asked, hosts), len(options))
    scores = scoring.score(
        after,
        scenes.present[count:],
        before[0],
        limits,
        used,
        asked.objective,
        [
            scoring.Ceiling(waits, after.latency.expected, before[1]),
            scoring.Ceiling(shorts, after.time_short(), short_before),
        ],
        half_before,
        scoring.more_short(after.time_short(), short_before, scenes.profiled[count:]),
    )
    usable = np.concatenate([one.usable for one in options])
    chosen = scoring.choose_options(scores, len(options), np.array([one.pins for one in options]), usable)
    at = chosen * count + np.arange(count)
    found = []
    question = PlacementQuestion(snapshot, asked, predictor, table, row)
    for number in _in_order(question, hosts, scores.score[at], after, at):
        scene = int(at[number])
        names = {slot: one.id for slot, one in enumerate(snapshot.residents[hosts[number]])} | {
            scenes.slots - 1: asked.instance.id
        }
        bands = [getattr(after, name) for name in TARGETS]
        found.append(
            Plain(
                snapshot.hosts[hosts[number]].id,
                float(scores.score[scene]),
                float(scores.combined[scene]),
                tuple(np.flatnonzero(options[chosen[number]].affinity[number]).tolist()),
                {
                    names[slot]: tuple(float(getattr(b, e)[scene, slot]) for b in bands for e in EDGES)
                    for slot in np.flatnonzero(scenes.present[count + scene]).tolist()
                },
                bool(scores.breaks_new_vm[scene] | scores.breaks_neighbour[scene]),
            )
        )
    return found


EDGES = ("expected", "lower", "upper")


def _in_order(
    question: PlacementQuestion, hosts: Ints, score: Floats, after: InterferencePrediction, scenes: Ints
) -> list[int]:
    """Best first: by scores that are equal within EQUAL, then who is badly off, quick answers, where it is already,
    headroom and name."""
    headroom = headroom_of(question, hosts)
    lowest = [float(np.nanmin(after.throughput.expected[scene])) for scene in scenes]
    sensitive = question.request.instance.service == "latency"
    speed = [float(1 / after.latency.expected[scene, -1]) if sensitive else 0.0 for scene in scenes]

    def leaders(values: Sequence[float], width: float) -> list[float]:
        best: dict[float, float] = {}
        leader = math.inf
        for value in sorted(values, reverse=True):
            leader = value if value < leader - width else leader
            best[value] = leader
        return [best[value] for value in values]

    if question.request.objective == "pack":
        return sorted(range(len(hosts)), key=lambda at: (-round(float(score[at]), 9), at))
    own = {host for host, _ in question.snapshot.where(question.request.instance.id)}
    keys = zip(
        leaders([float(one) for one in score], EQUAL),
        leaders(lowest, NOTICED),
        leaders(speed, NOTICED),
        [float(int(host) in own) for host in hosts],
        headroom.one_node.tolist(),
        headroom.least.tolist(),
        strict=True,
    )
    by_key = {at: tuple(-part for part in key) for at, key in enumerate(keys)}
    return sorted(by_key, key=lambda at: (by_key[at], at))


def _without_gains(
    after: InterferencePrediction, before: InterferencePrediction, options: int
) -> InterferencePrediction:
    """The expectation of each resident, and the worse edge of its interval, are at best what they were before."""

    def worse(target: str, edge: str) -> np.ndarray:
        now, was = (getattr(getattr(said, target), edge) for said in (after, before))
        pick = np.fmin if target == "throughput" else np.fmax
        residents = np.where(np.isnan(now), now, pick(now, np.tile(was, (options, 1))))
        return np.concatenate([residents[:, :-1], now[:, -1:]], axis=1)

    throughput, latency, jitter = (
        replace(getattr(after, target), **{edge: worse(target, edge) for edge in ("expected", worst)})
        for target, worst in zip(TARGETS, ("lower", "upper", "upper"), strict=True)
    )
    pressure = after.pressure
    if pressure is not None and before.pressure is not None:
        short = np.fmax(pressure.short, np.tile(before.pressure.short, (options, 1)))
        short[:, -1] = pressure.short[:, -1]
        pressure = replace(pressure, short=short)
    return InterferencePrediction(throughput, latency, jitter, after.outside, pressure)


def check_same(answer: Recommendation, reference: Sequence[Plain], snapshot: ClusterSnapshot) -> None:
    """Bit by bit: who is fine, in which order, with which numbers under which pins; mended hosts are not compared."""
    fine = [one for one in reference if not one.breaks]
    ours = [one for one in answer.candidates if not one.mitigation]
    assert [one.host for one in ours] == [one.host for one in fine]
    asked = answer.request.instance
    for one, other in zip(ours, fine, strict=True):
        assert (one.score, one.combined_score) == (other.score, other.combined)
        pinned = one.pinning.union if one.pinning else set()
        there = snapshot.hosts[snapshot.index(one.host) or 0]
        assert tuple(sorted(pinned or range(there.pcpus))) == other.affinity
        for effect in (one.new_vm, *one.neighbours):
            bands = (effect.throughput_ratio, effect.latency_ratio, effect.jitter_ratio)
            assert tuple(getattr(band, edge) for band in bands for edge in EDGES) == other.ratios[effect.instance]
        assert {asked.id, *(effect.instance for effect in one.neighbours)} == other.ratios.keys()
    broken = {one.host for one in reference if one.breaks}
    mended = {one.host for one in answer.candidates if one.mitigation}
    assert {one.host for one in answer.rejected if one.code.startswith("limit.")} == broken - mended


NAMES = [*(workload.name for workload in WORKLOADS), None]


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, ...]:
    """A few hosts of fewer kinds."""
    flavours = [
        {"kind": draw(st.sampled_from(["xen", "kvm", "lxc"])), "pcpus": draw(st.integers(1, 4)), "cpu_overcommit": 16.0}
        for _ in range(2)
    ]
    return tuple(host(f"h{at}", **draw(st.sampled_from(flavours))) for at in range(draw(st.integers(1, 5))))


@st.composite
def residents(draw: st.DrawFn, there: Sequence[Host], prefix: str = "i") -> tuple[Instance, ...]:
    return tuple(
        vm(
            f"{prefix}{at}",
            draw(st.sampled_from(NAMES)),
            on=draw(st.sampled_from(there)).id,
            vcpus=draw(st.integers(1, 2)),
            min_throughput_ratio=draw(st.sampled_from([None, None, None, 0.3, 0.7])),
            max_latency_ratio=draw(st.sampled_from([None, None, None, 1.2, 3.0])),
        )
        for at in range(draw(st.integers(0, 9)))
    )


@st.composite
def questions(draw: st.DrawFn, there: Sequence[Instance]) -> PlacementRequest:
    name = draw(st.sampled_from(["n", *(one.id for one in there)]))
    new_vm = vm(
        name,
        draw(st.sampled_from(NAMES)),
        vcpus=draw(st.integers(1, 2)),
        min_throughput_ratio=draw(st.sampled_from([None, None, 0.5])),
        max_latency_ratio=draw(st.sampled_from([None, None, 2.0])),
        pins=draw(st.sampled_from(["", "", "0:0"])),
    )
    profile = draw(st.sampled_from([None, None, WorkloadProfile("own", {"cpu": 30.0, "disk_mb_s": 900.0})]))
    return request(new_vm, profile=profile, objective=draw(st.sampled_from(["worst", "total", "limits", "pack"])))


@settings(max_examples=examples(12), deadline=None, phases=[Phase.generate])
@given(st.data())
def test_the_answer_is_that_of_asking_about_every_host_and_option_at_once(data: st.DataObject) -> None:
    """Over several questions to a cloud that changes, with one memory."""
    there = data.draw(hosts())
    all_instances = data.draw(residents(there))
    snapshot, memory, prior = cloud(there, all_instances), PredictionCache(), PriorPredictor()
    for turn in range(3):
        asked = data.draw(questions(all_instances))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mitigation, "escalate", lambda *_, **__: ())
            answer = put(snapshot, asked, prior, memory)
            assert answer == put(snapshot, asked, prior)
        check_same(answer, plain(snapshot, asked, prior), snapshot)
        gone = data.draw(st.sets(st.sampled_from([one.id for one in all_instances]))) if all_instances else set()
        new = data.draw(residents(there, f"t{turn}-"))
        changes: dict[str, Instance | None] = dict.fromkeys(gone) | {one.id: one for one in new}
        all_instances = (*(one for one in all_instances if one.id not in gone), *new)
        snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=changes)


@pytest.fixture(scope="module")
def trained() -> Predictor:
    """A small model of real measurements."""
    whole = load_dataset(LAB)
    kept = tuple(one for number, one in enumerate(whole.colocations) if number % 6 == 0)
    with pytest.MonkeyPatch.context() as patch:
        limit_trees(patch, boosters=1)
        return fit_predictor([replace(whole, colocations=kept)])


@pytest.mark.skipif(not LAB.is_dir(), reason="the lab's measurements are not here")
@pytest.mark.parametrize("seed", range(2))
def test_so_it_is_with_a_trained_model(trained: Predictor, seed: int) -> None:
    profiles = tuple(load_dataset(LAB).profiles)
    names = sorted({one.name for one in profiles})
    random = np.random.default_rng(seed)
    there = [host(f"h{at:02}", kind="lxc", pcpus=4, cpu_overcommit=16.0) for at in range(12)]

    def some(prefix: str, count: int) -> list[Instance]:
        return [
            vm(f"{prefix}{at}", str(random.choice(names)), on=str(random.choice([one.id for one in there])))
            for at in range(count)
        ]

    snapshot, memory = cloud(there, some("i", 30), workloads=profiles), PredictionCache()
    for turn in range(3):
        asked = request(vm("n", str(random.choice(names)), vcpus=2))
        answer = put(snapshot, asked, trained, memory)
        assert answer == put(snapshot, asked, trained)
        check_same(answer, plain(snapshot, asked, trained), snapshot)
        new = {one.id: one for one in some(f"t{turn}-", 2)}
        snapshot = snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=new)


# what is asked, and what drops it


def three_kinds() -> ClusterSnapshot:
    """Six hosts: three alone, two with one spinner, one with two; no instance is sensitive."""
    busy = [vm("r1", on="d"), vm("r2", on="e"), vm("r3", on="f"), vm("r4", on="f")]
    return cloud([host(name, pcpus=1) for name in "abcdef"], busy)


def changed(snapshot: ClusterSnapshot, **more: Any) -> ClusterSnapshot:
    return snapshot.changed(seen={}, pending=(), taken_at=NOW + timedelta(seconds=1), **more)


def test_hosts_that_are_alike_are_asked_about_once() -> None:
    counting = Counting()
    put(three_kinds(), request(), counting)
    assert screened(counting) == 3 * 2  # without the new VM and with it; one pCPU leaves nothing to pin


def test_latency_is_predicted_only_where_an_instance_counts_it_and_for_what_is_shown() -> None:
    counting = Counting()
    snapshot = changed(three_kinds(), instances={"r1": vm("r1", on="d", max_latency_ratio=9.0)})
    put(snapshot, request(limit=1), counting)
    assert sorted((count, sorted(targets)) for count, targets in counting.asked) == [
        (2, sorted(TARGETS)),  # the best host is alike the one it is compared with: without the new VM and with it
        (2, ["latency"]),
        (6, []),
    ]


def test_the_same_question_asks_nothing_again_and_another_only_what_is_new() -> None:
    counting, memory, snapshot = Counting(), PredictionCache(), three_kinds()
    assert put(snapshot, request(), counting, memory) == put(snapshot, request(), PriorPredictor())
    assert screened(counting) == 6
    put(snapshot, request(), counting, memory)
    assert screened(counting) == 0
    put(snapshot, request(vm("n", "calm")), counting, memory)
    assert screened(counting) == 3  # without the new VM all is as it was


@pytest.mark.parametrize(
    ("new_vm", "asked"),
    [
        ({"workload": "calm"}, 3),
        ({"vcpus": 2}, 0),  # does not fit on a host with one pCPU
        ({"load": 0.5}, 3),
        ({"cap_percent": 50.0}, 3),
        ({"weight": 512}, 3),
        ({"pins": "0:0"}, 3),
        ({"name": "another"}, 0),
        ({"memory_mb": 512.0}, 0),
        ({"min_throughput_ratio": 0.01}, 0),
        ({"labels": {"team": "a"}}, 0),
    ],
)
def test_what_a_new_vm_is_drops_what_was_said_of_it_and_nothing_else_does(new_vm: dict[str, Any], asked: int) -> None:
    counting, memory, snapshot = Counting(), PredictionCache(), three_kinds()
    put(snapshot, request(), counting, memory)
    screened(counting)
    put(snapshot, request(vm(**new_vm)), counting, memory)
    assert screened(counting) == asked


def test_a_changed_profile_of_the_new_vm_drops_what_was_said_of_it() -> None:
    counting, memory, snapshot = Counting(), PredictionCache(), three_kinds()
    for cpu, asked in ((50.0, 6), (50.0, 0), (60.0, 3)):
        put(snapshot, request(profile=WorkloadProfile("own", {"cpu": cpu})), counting, memory)
        assert screened(counting) == asked
    known = [*WORKLOADS[:1], WorkloadProfile("calm", {"cpu": 6.0, "block": 50.0}), *WORKLOADS[2:]]
    put(snapshot, request(vm("n", "calm")), counting, memory)
    screened(counting)
    put(changed(snapshot, workloads=known), request(vm("n", "calm")), counting, memory)
    assert screened(counting) == 3


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({"instances": {"r1": None}}, 0),  # as the three that are empty
        ({"instances": {"r1": vm("r1", "calm", on="d")}}, 2),
        ({"instances": {"r1": vm("r1", on="d", weight=512)}}, 2),
        ({"instances": {"r9": vm("r9", on="a")}}, 0),  # as d and e
        ({"instances": {"r2": vm("renamed", on="e", memory_mb=512.0, labels={"a": "b"})}}, 0),
        ({"instances": {"r1": vm("r1", on="d", min_throughput_ratio=0.01)}}, 0),
        ({"hosts": {"a": host("a", pcpus=1, labels={"zone": "a"}, cpu_overcommit=9.0)}}, 0),
        ({"hosts": {"a": host("a", pcpus=1, nic_mbit=9000.0)}}, 2),
        ({"hosts": {"g": host("g", pcpus=1)}}, 0),
        ({"hosts": {"a": None}}, 0),
        ({"hosts": {"f": None}}, 4),  # the others' sums are over one slot less
        ({"workloads": [*WORKLOADS, WorkloadProfile("new", {"cpu": 1.0})]}, 0),
        ({"workloads": [WorkloadProfile("spin", {"cpu": 90.0, "block": 0.0}), *WORKLOADS[1:]]}, 4),
    ],
)
def test_a_changed_host_drops_what_was_said_of_it_and_nothing_else_does(change: dict[str, Any], asked: int) -> None:
    counting, memory, snapshot = Counting(), PredictionCache(), three_kinds()
    question = request(vm("n", "web"))
    put(snapshot, question, counting, memory)
    screened(counting)
    now = changed(snapshot, **change)
    assert put(now, question, counting, memory) == put(now, question, PriorPredictor())
    assert screened(counting) == asked


def test_another_model_drops_everything_and_the_former_one_finds_it_again() -> None:
    memory, snapshot = PredictionCache(), three_kinds()
    for version, asked in (("m-1", 6), ("m-2", 6), ("m-1", 0), ("m-2", 0)):
        counting = Counting(version)
        put(snapshot, request(), counting, memory)
        assert screened(counting) == asked


def test_another_option_is_asked_by_itself() -> None:
    """The driver domain's own pCPU makes leaving it alone a choice; what an option says is under its own name."""
    counting, memory = Counting(), PredictionCache()
    snapshot = cloud([host("a", pcpus=4, driver_cpus=(0,))], [vm(f"r{at}", "web", on="a") for at in range(4)])
    free = put(snapshot, request(vm("n", "web")), counting, memory)
    assert screened(counting) > 2
    pinned = put(snapshot, request(vm("n", "web", pins="0:2")), counting, memory)
    assert screened(counting) == 1
    assert free == put(snapshot, request(vm("n", "web")), counting, memory)
    assert pinned == put(snapshot, request(vm("n", "web", pins="0:2")), PriorPredictor())


def test_which_of_equal_pins_is_taken_does_not_depend_on_which_was_asked_about_first() -> None:
    """Half the speed for what may run on pCPU 0, all of it for the rest, as trees see it: many pins are equal."""
    stepwise, memory = Invented(lambda scenes: np.where(scenes.affinity[:, :, 0], 0.5, 1.0)), PredictionCache()
    one = host("a", pcpus=4, driver_cpus=(0,))
    full = cloud([one], [vm("r", on="a", vcpus=3, pins="0:1|1:2|2:3")])
    (first,) = put(full, request(), stepwise, memory).candidates
    assert first.pinning == Pinning(((1, 2, 3),))  # no pCPU is free: all for guests are the only pin
    alone = put(cloud([one]), request(), stepwise)
    assert alone.candidates[0].pinning == Pinning(((1,),))
    assert put(cloud([one]), request(), stepwise, memory) == alone
