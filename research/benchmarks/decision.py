"""Speed of one decision: ranking clouds of 100 to 10,000 hosts, whole against the model's share, cold and warm.

    python -m research.benchmarks.decision [--json] [--sizes 100,1000,10000] [--model DIRECTORY]

Two clouds per size: of few flavours, where a host has one of the contents that a real cloud repeats (how often is
printed), and one where no two hosts are alike; in both a quarter of the hosts each have one NUMA node, two, two and
threads, and all of that with CPUs of the driver domain's own. Two new VMs: one that works, one that answers and minds
latency. Cold is a question that nothing is remembered for; warm is the same question after FEW hosts changed; another
is one about a new VM that was never asked about, in a cloud that was. The baseline in the same run is the model's own
predict of the same scenes, in the same parts. All runs on one core; times are of the process's CPU, medians of
interleaved repeats.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.placement import decision
from advisor.prediction.active import ActivePredictor, PredictionCache, PredictorProxy, QuestionContext
from advisor.scheduling import pinning
from advisor.snapshot import ClusterSnapshot
from models.data.dataset import load_dataset
from models.data.scene import SceneBatch
from models.learning.artifact import load
from models.prediction import TARGETS, InterferencePrediction, Predictor
from models.training import train
from research.benchmarks.measuring import apart, circumstances

SIZES, RESIDENTS, REPEATS, FEW = (100, 1000, 10_000), 8, 5, 5
REPEATS_OF_MANY = 2  # of 10,000 hosts and more
FLAVOURS = 40  # contents of hosts in the cloud of few flavours: 1,000 hosts have each of them 25 times
CLOUDS = ("few flavours", "no two alike")
NEW_VMS: dict[str, dict[str, Any]] = {"works": {}, "answers": {"service": "latency", "max_latency_ratio": 3.0}}
SHAPES: tuple[dict[str, Any], ...] = (  # of hosts with 16 pCPUs
    {"kind": "lxc"},
    {"kind": "lxc", "numa": (tuple(range(8)), tuple(range(8, 16)))},
    {"kind": "lxc", "numa": ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)), "threads_per_core": 2},
    {"kind": "kvm", "numa": ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)), "threads_per_core": 2,
     "driver_cpus": (0, 8)},
)  # fmt: skip
DATASETS = ("datasets/lab-neighbours",)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGETS_MS = {1000: (100.0, 20.0), 10_000: (1000.0, 50.0)}  # cold, warm; of "Advice an operator would follow"
SHARES = {
    "filters": "filters.py:apply",
    "alike": "host_classes.py:host_classes",
    "asking": "host_classes.py:predict_classes",
    "order": "decision.py:_rank_hosts",
    "answer": "candidates.py:candidates",
}


@dataclass(frozen=True)
class Listening(PredictorProxy):
    """A predictor that keeps what it was asked before the answer's own scenes."""

    asked: list[tuple[SceneBatch, Any]] = field(default_factory=list)

    def predict(self, scenes: SceneBatch, targets: Any = TARGETS) -> InterferencePrediction:
        """As the predictor says."""
        if set(targets) != set(TARGETS):
            self.asked.append((scenes, targets))
        return self.predictor.predict(scenes, targets)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--model", type=Path, help="an artifact; without it one is trained on the lab's neighbours")
    parser.add_argument("--one", nargs=3, metavar=("CLOUD", "SIZE", "NEWCOMER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        cloud, size, new_vm = options.one
        print(json.dumps(measured(options.model, cloud, int(size), new_vm)))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or train([Path(path) for path in DATASETS], Path(folder))
        rows = [
            apart("decision", "--model", str(model), "--one", cloud, size, new_vm)
            for size in options.sizes.split(",")
            for cloud in CLOUDS
            for new_vm in NEW_VMS
        ]
    document = {**circumstances(), "residents": RESIDENTS, "changed": FEW, "rows": rows}
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        _show(document)


def measured(model: Path, cloud: str, size: int, new_vm: str) -> dict[str, Any]:
    """Times of one cloud in milliseconds, how much of it is distinct, and the peak memory in MB."""
    predictor = load(model)
    profiles = tuple(profile for path in DATASETS for profile in load_dataset(Path(path)).profiles if profile.platform)
    begin = time.process_time()
    snapshot = made_cloud(cloud, size, profiles)
    built = time.process_time() - begin
    names = sorted({one.name for one in profiles})
    instance = Instance("new", vcpus=2, memory_mb=4096, workload=names[0], **NEW_VMS[new_vm])

    def ask(
        there: ClusterSnapshot, remembered: PredictionCache | None, by: Predictor = predictor, who: Instance = instance
    ) -> object:
        request = PlacementRequest(who)
        active = ActivePredictor(by, remembered=remembered or PredictionCache())
        return decision.recommend(there, QuestionContext(active, NOW, 1.0), request)

    listening = Listening(predictor)
    ask(snapshot, None, listening)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    choices = np.sum([option.usable for option in pinning.options(snapshot.scenes, instance, snapshot.hosts)], axis=0)

    def own() -> None:
        for scenes, targets in listening.asked:
            predictor.predict(scenes, targets)

    remembered = PredictionCache()
    ask(snapshot, remembered)
    now = snapshot
    times: dict[str, list[float]] = {"cold": [], "model": [], "warm": [], "another": [], "change": []}
    repeats = REPEATS if size < 10_000 else REPEATS_OF_MANY
    for turn in range(repeats + 1):
        begin = time.process_time()
        now = _some_changed(now, turn, names)
        changed = time.process_time()
        found = {
            "cold": _spent(lambda: ask(snapshot, None)),
            "model": _spent(own),
            "warm": _spent(lambda there=now: ask(there, remembered)),  # type: ignore[misc]
            "another": _spent(
                lambda there=now, who=replace(instance, load=0.9 - turn / 100): ask(there, remembered, who=who)  # type: ignore[misc]
            ),
            "change": changed - begin,
        }
        if turn:
            for name, value in found.items():
                times[name].append(1000 * value)
    return {
        "cloud": cloud,
        "new_vm": new_vm,
        "hosts": size,
        "choices": {str(count): int((choices == count).sum()) for count in np.unique(choices).tolist()},
        "repeats": repeats,
        "situations": len(np.unique(snapshot.fingerprints)),
        "scenes": sum(len(scenes) for scenes, _ in listening.asked),
        "rows": sum(int(scenes.present.sum()) for scenes, _ in listening.asked),
        **{f"{name}_ms": statistics.median(values) for name, values in times.items()},
        "whole_over_model": statistics.median(
            [cold / own for cold, own in zip(times["cold"], times["model"], strict=True)]
        ),
        "build_ms": 1000 * built,
        "cold_share_ms": _where(lambda: ask(snapshot, None)),
        "warm_share_ms": _where(lambda: ask(_some_changed(now, REPEATS + 1, names), remembered)),
        "peak_mb": peak_mb,
    }


def made_cloud(cloud: str, size: int, profiles: tuple[WorkloadProfile, ...]) -> ClusterSnapshot:
    """Hosts in SHAPES with RESIDENTS instances each: of FLAVOURS contents, or each with loads of its own."""
    random = np.random.default_rng(0)
    names = sorted({profile.name for profile in profiles})
    contents = random.choice(names, (FLAVOURS if cloud == CLOUDS[0] else size, RESIDENTS))
    loads = np.ones(contents.shape) if cloud == CLOUDS[0] else random.uniform(0.5, 1.0, contents.shape)
    of = random.integers(0, len(contents), size) if cloud == CLOUDS[0] else np.arange(size)
    hosts = tuple(
        Host(f"h{at:05}", pcpus=16, memory_mb=262_144, nic_mbit=10_000, **SHAPES[which % len(SHAPES)])
        for at, which in enumerate(of.tolist())
    )
    instances = tuple(
        Instance(
            f"i{slot}-{host.id}",
            vcpus=2,
            memory_mb=4096,
            host=host.id,
            workload=str(contents[which, slot]),
            load=float(loads[which, slot]),
        )
        for host, which in zip(hosts, of.tolist(), strict=True)
        for slot in range(RESIDENTS)
    )
    seen = {host.id: NOW for host in hosts}
    return ClusterSnapshot.build(Inventory(hosts, instances, profiles), seen=seen, pending=(), taken_at=NOW)


def _some_changed(snapshot: ClusterSnapshot, turn: int, names: list[str]) -> ClusterSnapshot:
    """The cloud after one instance on each of FEW hosts has come to run at a load that no host knew."""
    random = np.random.default_rng(1 + turn)
    new = {}
    for host in random.choice(len(snapshot.hosts), FEW, replace=False).tolist():
        one = snapshot.residents[host][0]
        new[one.id] = replace(one, workload=str(random.choice(names)), load=float(random.uniform(0.5, 1.0)))
    return snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=new)


def _spent(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _where(work: Callable[[], object]) -> dict[str, float]:
    """Where the time goes, by function: milliseconds under a profiler, which itself takes some."""
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    shares = dict.fromkeys(SHARES, 0.0) | {"predict": 0.0, "prior": 0.0, "trees": 0.0}
    for (path, _, name), (_, _, _, spent, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = f"{Path(path).name}:{name}"
        for share, wanted in SHARES.items():
            if place == wanted and ("advisor" in path):
                shares[share] += 1000 * spent
        shares["predict"] += 1000 * spent if place == "learned_predictor.py:predict" else 0.0
        shares["prior"] += 1000 * spent if place == "prior.py:solve" else 0.0
        shares["trees"] += 1000 * spent if place in {"basic.py:__inner_predict_np2d", "trees.py:__call__"} else 0.0
    return {name: round(value, 2) for name, value in shares.items()}


def _show(document: dict[str, Any]) -> None:
    print(f"One decision, {RESIDENTS} residents per host, one core, CPU time; {document['machine']}")
    for row in document["rows"]:
        cold, warm = TARGETS_MS.get(row["hosts"], (float("nan"), float("nan")))
        print(
            f"\n{row['hosts']:6} hosts, {row['cloud']}, one that {row['new_vm']}: {row['situations']} situations, "
            f"{row['scenes']} scenes and {row['rows']} rows asked, pinnings "
            f"{', '.join(f'{count} on {hosts}' for count, hosts in row['choices'].items())}, "
            f"peak {row['peak_mb']:.0f} MB, built in {row['build_ms']:.0f} ms\n"
            f"  cold {row['cold_ms']:8.1f} ms (target {cold:.0f}), of the model's predict {row['model_ms']:8.1f} ms: "
            f"ratio {row['whole_over_model']:.2f} (target 1.3)\n"
            f"  warm {row['warm_ms']:8.1f} ms (target {warm:.0f}) after {FEW} hosts changed, the change "
            f"{row['change_ms']:.1f} ms; another new VM {row['another_ms']:.1f} ms"
        )
        for which in ("cold", "warm"):
            print(f"  {which}: " + ", ".join(f"{name} {ms:.1f}" for name, ms in row[f"{which}_share_ms"].items()))


if __name__ == "__main__":
    main()
