"""Speed of one decision where no two hosts are alike: every instance has a demand over time of its own.

    python -m research.benchmarks.unlike_hosts [--json] [--sizes 100,1000,10000] [--chart OUT.png] [--misses QUESTIONS]
        [--model DIR]

Hosts have 64 CPUs, half of them in two NUMA nodes, and 10 to 30 instances of 2 to 16 vCPUs, whose demands (simulated:
random means, spreads, parts in common, loops and bursts) load a host to 30-110 % on average. The analytic model
answers, with reasons. Cold is a question for which nothing is remembered; warm is the same one after 1 % of the hosts
had news; another is one about a new VM that was never asked about, in a cloud that was. The baseline in the same run
is the predictor's own predict of all hosts, without the new VM and with it under every pinning. All runs on one core;
wall and CPU times are medians of interleaved repeats. --chart draws them by the number of hosts.

--misses asks so many questions of clouds of 500 hosts twice: as the service does, and with every host predicted in
full, and of a model every pinning. It prints how often the first host differs and how often any shown host does, how
often one is not tied with the host of its rank in the full answer, how much lower its score is at most, and how often
who is refused differs; by kind of cloud: as above; where every host is full; where some instances have
caps, pins and weights; and where they use network, disk and memory bandwidth, too. Every third new VM is sensitive
to latency, every fourth has a limit, and every second question is for the sum of all.

--model compares a question to this model with the same question to the prior, cold, in turns, and with Nova's filters
and weighers; or is the model that --misses is about.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Objective, PlacementRequest, Recommendation
from advisor.placement import decision, host_classes
from advisor.prediction.active import ActivePredictor, PredictionCache, QuestionContext
from advisor.scheduling import scoring
from advisor.scheduling.rules import most_free
from advisor.snapshot import ClusterSnapshot
from models.learning.artifact import load
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler import pictures
from profiler.demand import Demand, Resource
from profiler.observed import Pinning
from research.benchmarks.decision import Listening
from research.benchmarks.measuring import apart, circumstances

SIZES, PCPUS, RESIDENTS = (100, 1000, 10_000), 64, (10, 30)
LOADS, FULL, RESTRAINED = (0.3, 1.1), (0.9, 1.4), 0.2
SHAPES: tuple[dict[str, Any], ...] = ({}, {"numa": (tuple(range(32)), tuple(range(32, 64)))})
VCPUS = (2, 4, 8, 16)
NEWS = 0.01  # of the hosts
REPEATS, REPEATS_OF_MANY = 7, 5  # of 10,000 hosts and more
COMPARED = 9  # questions to both, the prior and a model
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGETS_MS = {1000: (100.0, 20.0), 10_000: (1000.0, 50.0)}  # cold, warm
CLOUD_OF_MISSES, QUESTIONS_OF_A_CLOUD = 500, 10
PRIOR = PriorPredictor()
OBJECTIVES: tuple[Objective, ...] = ("worst", "total")
CLOUDS = ("mixed", "full", "restrained", "devices")


def random_demand(random: np.random.Generator, mean: float, vcpus: int) -> Demand:
    """A demand for CPUs with this mean and everything else at random, as if learned from 2,000 windows."""
    mean = min(mean, 0.95 * vcpus)
    return Demand(
        mean,
        spread=mean * float(random.uniform(0.2, 1.5)),
        common=float(random.uniform(0.0, 0.3)),
        open_loop=float(random.integers(0, 2)),
        burst_ms=float(random.uniform(0.5, 20.0)),
        windows=2000.0,
        doubt=mean * float(random.uniform(0.01, 0.1)),
        origin="measured",
    )


def device_demands(random: np.random.Generator) -> dict[Resource, Demand]:
    """Demands for the other resources, which fill some hosts."""
    means: dict[Resource, float] = {"net_mbit": 300.0, "disk_mb_s": 60.0, "mem_bw_mb_s": 2000.0}
    return {
        device: Demand(
            drawn := mean * float(random.lognormal(0.0, 1.0)),
            resource=device,
            spread=drawn * float(random.uniform(0.2, 1.5)),
            common=float(random.uniform(0.0, 0.3)),
            windows=2000.0,
            origin="measured",
        )
        for device, mean in means.items()
    }


def random_settings(random: np.random.Generator, vcpus: int) -> IsolationSettings:
    """A cap, pins or a weight."""
    choice = int(random.integers(0, 3))
    first = int(random.integers(0, PCPUS - vcpus))
    return IsolationSettings(
        cap_percent=100.0 * vcpus * float(random.uniform(0.3, 0.9)) if choice == 0 else None,
        pinning=Pinning.all_on(tuple(range(first, first + vcpus)), vcpus) if choice == 1 else None,
        weight=int(random.choice((128, 512, 2048))) if choice == 2 else None,
    )


def residents(
    random: np.random.Generator, host: str, cloud: str = CLOUDS[0], how_many: tuple[int, int] = RESIDENTS
) -> list[Instance]:
    """The instances of one host, which want a random part of its CPUs on average."""
    loads = FULL if cloud == "full" else LOADS
    vcpus = random.choice(VCPUS, random.integers(how_many[0], how_many[1] + 1))
    parts = vcpus * random.lognormal(0.0, 1.0, len(vcpus))
    means = parts / parts.sum() * PCPUS * random.uniform(*loads)
    return [
        Instance(
            f"i{slot:02}-{host}",
            vcpus=int(size),
            memory_mb=4096,
            host=host,
            demand={
                "cpu": random_demand(random, float(mean), int(size)),
                **(device_demands(random) if cloud == "devices" else {}),
            },
            settings=(
                random_settings(random, int(size))
                if cloud == "restrained" and random.random() < RESTRAINED
                else IsolationSettings()
            ),
        )
        for slot, (size, mean) in enumerate(zip(vcpus.tolist(), means.tolist(), strict=True))
    ]


def made_inventory(
    size: int, seed: int = 0, cloud: str = CLOUDS[0], residents_of: tuple[int, int] = RESIDENTS
) -> Inventory:
    """So many hosts with their instances."""
    random = np.random.default_rng(seed)
    known: dict[str, Any] = (
        {"nic_mbit": 10_000.0, "disk_mb_s": 2000.0, "mem_bw_mb_s": 80_000.0} if cloud == "devices" else {}
    )
    hosts = tuple(
        Host(
            f"h{at:05}",
            "kvm",
            pcpus=PCPUS,
            memory_mb=1_048_576,
            cpu_overcommit=8.0,
            **SHAPES[at % len(SHAPES)],
            **known,
        )
        for at in range(size)
    )
    return Inventory(hosts, tuple(one for host in hosts for one in residents(random, host.id, cloud, residents_of)), ())


def made_cloud(size: int, seed: int = 0, cloud: str = CLOUDS[0]) -> ClusterSnapshot:
    """The snapshot of `made_inventory`."""
    inventory = made_inventory(size, seed, cloud)
    seen = {host.id: NOW for host in inventory.hosts}
    return ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=NOW)


def new_vm(random: np.random.Generator, name: str = "new", cloud: str = CLOUDS[0], **more: Any) -> Instance:
    """An instance to place, with a demand of its own."""
    vcpus = int(random.choice(VCPUS))
    return Instance(
        name,
        vcpus=vcpus,
        memory_mb=4096,
        demand={
            "cpu": random_demand(random, float(vcpus * random.uniform(0.1, 0.6)), vcpus),
            **(device_demands(random) if cloud == "devices" else {}),
        },
        **more,
    )


def with_news(snapshot: ClusterSnapshot, random: np.random.Generator) -> ClusterSnapshot:
    """The cloud after one instance on each of 1 % of the hosts has come to want something else."""
    new = {}
    for host in random.choice(len(snapshot.hosts), max(int(NEWS * len(snapshot.hosts)), 1), replace=False).tolist():
        one = snapshot.residents[host][0]
        mean = one.demand["cpu"].mean * float(random.uniform(0.8, 1.25))
        new[one.id] = replace(one, demand={"cpu": random_demand(random, mean, one.vcpus)})
    return snapshot.changed(seen={}, pending=(), taken_at=NOW, instances=new)


def ask(
    snapshot: ClusterSnapshot,
    who: Instance,
    remembered: PredictionCache | None = None,
    *,
    by: Predictor = PRIOR,
    objective: Objective = "worst",
) -> Recommendation:
    """One question with its explanation; nothing is remembered without `remembered`."""
    active = ActivePredictor(by, remembered=remembered or PredictionCache())
    return decision.recommend(snapshot, QuestionContext(active, NOW, 1.0), PlacementRequest(who, objective=objective))


@contextlib.contextmanager
def all_predicted() -> Iterator[None]:
    """Within it no host is left out by a cheap estimate, and no pinning of a learned model."""
    with patch.object(decision, "SCREENED_FROM", sys.maxsize), patch.object(host_classes, "MOST_PINNED", sys.maxsize):
        yield


def missed(cloud: str, questions: int, by: Predictor) -> dict[str, Any]:
    """How the answers of one kind of cloud differ from those for which every host is predicted."""
    random = np.random.default_rng(1)
    first = shown = refused = untied = 0
    losses = [0.0]
    for turn in range(questions):
        if turn % QUESTIONS_OF_A_CLOUD == 0:
            snapshot = made_cloud(CLOUD_OF_MISSES, turn, cloud)
            remembered, of_all = PredictionCache(), PredictionCache()
        more: dict[str, Any] = {"service": "latency"} if turn % 3 == 2 else {}
        more |= {"min_throughput_ratio": 0.9} if turn % 4 == 3 else {}
        who, objective = new_vm(random, f"new-{turn}", cloud, **more), OBJECTIVES[turn % 2]
        found = ask(snapshot, who, remembered, by=by, objective=objective)
        with all_predicted():
            full = ask(snapshot, who, of_all, by=by, objective=objective)
        names, wanted = ([one.host for one in answer.candidates] for answer in (found, full))
        refused += found.rejected != full.rejected
        shown += names != wanted
        first += names[:1] != wanted[:1]
        ranks = list(zip(found.candidates, full.candidates, strict=False))
        losses += [best.score - one.score for one, best in ranks] if len(names) == len(wanted) else [1.0]
        untied += len(names) != len(wanted) or not all(
            scoring.tied(one.expected - best.expected, one.half_width, best.half_width) for one, best in ranks
        )
    return {
        "cloud": cloud,
        "model": by.version,
        "hosts": CLOUD_OF_MISSES,
        "questions": questions,
        "first_differs": first / questions,
        "shown_differ": shown / questions,
        "shown_untied": untied / questions,
        "most_lost": max(losses),
        "refused_differ": refused / questions,
    }


def compared(size: int, model: Predictor) -> dict[str, Any]:
    """CPU times in milliseconds of cold questions to the prior and to a model in turns, for one size of cloud, beside
    those of Nova's filters and weighers; `each_ms` has every question's."""
    random = np.random.default_rng(size)
    snapshot, listening = made_cloud(size), Listening(model)
    ask(snapshot, new_vm(random), by=PRIOR)  # compiles
    ask(snapshot, new_vm(random), by=listening)  # prepares what the table of profiles needs
    scenes = sum(len(asked) for asked, _ in listening.asked)
    before_mb = _resident_mb()
    by: dict[str, Callable[[Instance], object]] = {
        "prior": lambda who: ask(snapshot, who, by=PRIOR),
        "model": lambda who: ask(snapshot, who, by=model),
        "nova": lambda who: most_free(snapshot, PlacementRequest(who), fresh_s=math.inf),
    }
    each_ms: dict[str, list[float]] = {name: [] for name in by}
    for turn in range(COMPARED):
        instance = new_vm(random, f"new-{turn}")
        for name, answer in by.items():
            begin = time.process_time()
            answer(instance)
            each_ms[name].append(1000 * (time.process_time() - begin))
    return {
        "hosts": size,
        "model": model.version,
        "questions": COMPARED,
        "scenes": scenes,
        **{f"{name}_cpu_ms": statistics.median(times) for name, times in each_ms.items()},
        "model_over_prior": statistics.median(
            learned / prior for prior, learned in zip(each_ms["prior"], each_ms["model"], strict=True)
        ),
        "grown_mb": _resident_mb() - before_mb,
        "each_ms": each_ms,
    }


def _resident_mb() -> float:
    """Resident memory of this process (proc(5): the second number of statm, in pages)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measured(size: int) -> dict[str, Any]:
    """Wall and CPU times in milliseconds for one size of cloud."""
    random = np.random.default_rng(size)
    begin = _now()
    snapshot = made_cloud(size)
    built = _since(begin)
    instance = new_vm(random)
    listening = Listening(PRIOR)
    with all_predicted():  # which compiles, too
        ask(snapshot, instance, by=listening)
    remembered = PredictionCache()
    ask(snapshot, instance, remembered)
    spent: dict[str, list[tuple[float, float]]] = {}
    repeats = REPEATS if size < 10_000 else REPEATS_OF_MANY
    for turn in range(repeats + 1):
        begin = _now()
        news = with_news(snapshot, random)
        times = {"news": _since(begin)}
        asked: dict[str, tuple[ClusterSnapshot, Instance, PredictionCache | None]] = {
            "cold": (snapshot, instance, None),
            "warm": (news, instance, remembered),
            "another": (news, new_vm(random, f"other-{turn}"), remembered),
        }
        for name, arguments in asked.items():
            begin = _now()
            ask(*arguments)
            times[name] = _since(begin)
        begin = _now()
        for scenes, targets in listening.asked:
            PRIOR.predict(scenes, targets)
        times["predict"] = _since(begin)
        if turn:
            for name, took in times.items():
                spent.setdefault(name, []).append(took)
        snapshot = news
    return {
        "hosts": size,
        "repeats": repeats,
        "residents": int(snapshot.scenes.present.sum()),
        "scenes": sum(len(scenes) for scenes, _ in listening.asked),
        "build_ms": 1000 * built[0],
        "build_cpu_ms": 1000 * built[1],
        **{f"{name}_ms": 1000 * statistics.median(wall for wall, _ in times) for name, times in spent.items()},
        **{f"{name}_cpu_ms": 1000 * statistics.median(cpu for _, cpu in times) for name, times in spent.items()},
        "cold_over_predict": statistics.median(
            cold / raw for (_, cold), (_, raw) in zip(spent["cold"], spent["predict"], strict=True)
        ),
    }


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(begin: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = _now()
    return wall - begin[0], cpu - begin[1]


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--chart", type=Path, metavar="OUT.png")
    parser.add_argument("--misses", type=int, metavar="QUESTIONS", help="for each kind of cloud")
    parser.add_argument("--model", type=Path, metavar="DIR")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = None if options.model is None else load(options.model)
    if options.one:
        print(json.dumps(measured(options.one) if model is None else compared(options.one, model)))
        return
    if options.misses:
        for cloud in CLOUDS:
            print(json.dumps(missed(cloud, options.misses, model or PRIOR)), flush=True)
        return
    if model is not None:
        for size in options.sizes.split(","):
            row = apart("unlike_hosts", "--model", str(options.model), "--one", size)
            print(json.dumps({**circumstances(), **row}), flush=True)
        return
    if options.chart:
        pictures.check_target(options.chart)
    rows = [apart("unlike_hosts", "--one", size) for size in options.sizes.split(",")]
    if options.chart:
        picture(rows, options.chart)
    document = {**circumstances(), "news": NEWS, "rows": rows}
    print(json.dumps(document, indent=1) if options.json else _shown(document))


CURVES = (  # by panel: the figure and what it is
    (
        ("predict_cpu_ms", "every host predicted, without ranking"),
        ("cold_cpu_ms", "a question, nothing remembered"),
        ("another_cpu_ms", "a question about another new VM"),
        ("warm_cpu_ms", "the same question after news of 1 % of the hosts"),
    ),
    (("build_cpu_ms", "the snapshot is built"), ("news_cpu_ms", "it takes up news of 1 % of the hosts")),
)


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """What questions and the snapshot cost, a curve each by the number of hosts, both axes logarithmic."""
    figure, panels = pictures.new_figure(len(CURVES), width=11.0, height=4.0)
    hosts = [row["hosts"] for row in rows]
    for axes, curves in zip(panels, CURVES, strict=True):
        for (name, text), colour in zip(curves, pictures.SERIES, strict=False):
            axes.plot(hosts, [row[name] for row in rows], color=colour, marker="o", label=text)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(hosts, [f"{each:,}" for each in hosts])
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize="small")
        pictures.label(axes, "", "hosts of 20 VMs each", "ms of CPU")
    pictures.save(figure, path)


def _shown(document: dict[str, Any]) -> str:
    lines = [f"One decision where no two hosts are alike, one core, medians; {document['machine']}"]
    for row in document["rows"]:
        cold, warm = TARGETS_MS.get(row["hosts"], (float("nan"), float("nan")))
        lines.append(
            f"\n{row['hosts']:6} hosts, {row['residents']} residents, {row['scenes']} scenes of all hosts; "
            f"built in {row['build_ms']:.0f} ms"
        )
        for name, target in (("cold", cold), ("warm", warm), ("another", cold), ("news", None), ("predict", None)):
            wanted = f"  (target {target:.0f})" if target is not None else ""
            lines.append(f"  {name:8} {row[f'{name}_ms']:8.1f} ms wall {row[f'{name}_cpu_ms']:8.1f} ms CPU{wanted}")
        lines.append(f"  cold over the predict of all hosts: {row['cold_over_predict']:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
