"""Quality of placement on measured pairs: the advisor beside rules of thumb and the oracle; prints tables.

    python -m benchmarks.placement [DATASET]

Every prediction about a pair comes from a model that was trained without that pair.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from advisor.domain import Instance, Inventory, IsolationSettings, Pinning, PlacementRequest
from advisor.placement import recommend
from advisor.snapshot import ClusterSnapshot
from benchmarks.measured import CrossFitted, Pairs, throughput_only, without_pairs
from models.dataset import load_dataset
from models.prediction import Predictor
from models.prior import PriorPredictor

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STREAMS, HOSTS = 60, 6
NOISE = 2.0  # a difference counts where it exceeds this many standard errors

Policy = Callable[[Sequence[str | None], str, np.random.Generator], int]


@dataclass(frozen=True)
class Cloud:
    """Hosts for two instances each, as in the measurement: who comes first gets the first pinning, then the second."""

    pairs: Pairs
    pins: tuple[str, str]

    def snapshot(self, residents: Sequence[str | None]) -> ClusterSnapshot:
        """Hosts h0, h1, ... with at most one resident each."""
        platform = next(iter(self.pairs.dataset.platforms.values()))
        hosts = tuple(replace(platform, id=f"h{number}") for number in range(len(residents)))
        instances = tuple(
            self.instance(f"r{number}", resident, self.pins[0], f"h{number}")
            for number, resident in enumerate(residents)
            if resident is not None
        )
        inventory = Inventory(hosts, instances, self.pairs.dataset.profiles)
        seen = {host.id: NOW for host in hosts}
        return ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=NOW)

    def instance(self, name: str, workload: str, pinning: str, host: str | None = None) -> Instance:
        """One instance of the measurement."""
        pins = Pinning.parse(pinning)
        return Instance(
            id=name, vcpus=len(pins.cpus) if pins else 1, host=host, workload=workload,
            settings=IsolationSettings(pinning=pins),
        )  # fmt: skip

    def ask(self, predictor: Predictor, residents: Sequence[str | None], newcomer: str, hosts: Sequence[int]) -> int:
        """The host that the advisor ranks first among `hosts`."""
        request = PlacementRequest(
            self.instance("new", newcomer, self.pins[1]),
            hosts=tuple(f"h{host}" for host in hosts),
            objective="total",
            explain=False,
        )
        answer = recommend(self.snapshot(residents), predictor, request, recommendation_id="b", now=NOW, fresh_s=1.0)
        return int(answer.candidates[0].host[1:])


def questions(pairs: Pairs) -> list[tuple[str, str, str]]:
    """Every question `newcomer: beside one or beside other`."""
    return [(new, one, other) for new in pairs.workloads for one, other in combinations(pairs.workloads, 2)]


def left_out(question: tuple[str, str, str]) -> frozenset[str]:
    """The two pairs that a question is about."""
    new, one, other = question
    return frozenset({"+".join(sorted((new, one))), "+".join(sorted((new, other)))})


def which_of_two(cloud: Cloud, ask: Callable[[frozenset[str]], Predictor]) -> tuple[int, int, int]:
    """(right, decided by more than noise, asked) over all questions `newcomer: host with A or host with B`.

    `ask` gives the predictor for a question, trained without both pairs that the question is about.
    """
    right = decided = asked = 0
    for question in questions(cloud.pairs):
        newcomer, one, other = question
        scores = [cloud.pairs.score(resident, newcomer, cloud.pins) for resident in (one, other)]
        if scores[0] is None or scores[1] is None:
            continue
        asked += 1
        gap = scores[0][0] - scores[1][0]
        if abs(gap) <= NOISE * float(np.hypot(scores[0][1], scores[1][1])):
            continue
        decided += 1
        right += (cloud.ask(ask(left_out(question)), (one, other), newcomer, (0, 1)) == 0) == (gap > 0)
    return right, decided, asked


def stream(cloud: Cloud, choose: Policy, workloads: Sequence[str], random: np.random.Generator) -> float:
    """Place a stream of instances on HOSTS empty hosts of two seats each; mean measured T/B of all at the end."""
    first: list[str | None] = [None] * HOSTS
    second: list[str | None] = [None] * HOSTS
    for workload in workloads:
        residents = ["full" if two is not None else one for one, two in zip(first, second, strict=True)]
        host = choose(residents, workload, random)
        if first[host] is None:
            first[host] = workload
        else:
            second[host] = workload
    return total(cloud, list(zip(first, second, strict=True))) / len(workloads)


def total(cloud: Cloud, hosts: Sequence[tuple[str | None, str | None]]) -> float:
    """Sum of measured T/B; who is alone counts 1."""
    value = 0.0
    for one, other in hosts:
        together = [workload for workload in (one, other) if workload is not None]
        score = cloud.pairs.score(together[0], together[1], cloud.pins) if len(together) == 2 else None
        value += score[0] if score else float(len(together))
    return value


def oracle(cloud: Cloud, workloads: Sequence[str]) -> float:
    """The best mean T/B that any way of pairing them reaches (dynamic programme over who is placed)."""
    count = len(workloads)
    best = {0: 0.0}
    for done in range(1 << count):
        if done not in best:
            continue
        left = [at for at in range(count) if not done >> at & 1]
        for other in left[1:]:
            after = done | 1 << left[0] | 1 << other
            gain = total(cloud, [(workloads[left[0]], workloads[other])])
            best[after] = max(best.get(after, -1.0), best[done] + gain)
    return best[(1 << count) - 1] / count


def policies(cloud: Cloud, learned: Predictor) -> dict[str, Policy]:
    """Who decides; `full` hosts are closed to all."""

    def open_hosts(residents: Sequence[str | None]) -> list[int]:
        return [at for at, resident in enumerate(residents) if resident != "full"]

    def fewest(residents: Sequence[str | None], _workload: str, _random: np.random.Generator) -> int:
        return min(open_hosts(residents), key=lambda at: (residents[at] is not None, at))

    def advised(predictor: Predictor) -> Policy:
        def choose(residents: Sequence[str | None], workload: str, _random: np.random.Generator) -> int:
            names = [None if resident == "full" else resident for resident in residents]
            return cloud.ask(predictor, names, workload, open_hosts(residents))

        return choose

    return {
        "random": lambda residents, _workload, random: int(random.choice(open_hosts(residents))),
        "first fit": lambda residents, _workload, _random: open_hosts(residents)[0],
        "fewest instances": fewest,
        "cotenant, prior only": advised(PriorPredictor()),
        "cotenant": advised(learned),
    }


def run(dataset: Path) -> dict[str, object]:
    """All figures of one dataset."""
    pairs = Pairs(throughput_only(load_dataset(dataset)))
    learned = CrossFitted(pairs.dataset)
    keys = sorted({left_out(question) for question in questions(pairs)}, key=sorted)
    # spawn: a forked child waits for ever for the OpenMP threads that LightGBM had in its parent
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        fitted = dict(zip(keys, pool.map(partial(without_pairs, dataset), keys), strict=True))
    prior = PriorPredictor()
    result: dict[str, object] = {"dataset": pairs.dataset.name, "which_of_two": {}, "streams": {}}
    for mode, pins in sorted(pairs.modes().items()):
        cloud = Cloud(pairs, pins)
        two = {"cotenant": which_of_two(cloud, fitted.__getitem__), "prior": which_of_two(cloud, lambda _pairs: prior)}
        result["which_of_two"][mode] = {  # type: ignore[index]
            name: {"right": right, "decided": decided, "asked": asked} for name, (right, decided, asked) in two.items()
        }
        means: dict[str, list[float]] = {}
        for seed in range(STREAMS):
            random = np.random.default_rng(seed)
            workloads = [str(name) for name in random.choice(pairs.workloads, 2 * HOSTS)]
            for name, choose in policies(cloud, learned).items():
                means.setdefault(name, []).append(stream(cloud, choose, workloads, np.random.default_rng(seed)))
            means.setdefault("oracle", []).append(oracle(cloud, workloads))
        best = np.mean(means["oracle"])
        result["streams"][mode] = {  # type: ignore[index]
            name: {"mean_ratio": float(np.mean(values)), "regret_percent": float(100 * (1 - np.mean(values) / best))}
            for name, values in means.items()
        }
    return result


def main() -> None:
    """Print tables; `--json` for the numbers."""
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    default = sorted(path.parent for path in Path("datasets").glob("lab-*/dataset.yaml"))
    for dataset in [Path(name) for name in names] or default:
        result = run(dataset)
        if "--json" in sys.argv:
            print(json.dumps(result, indent=1))
            continue
        print(f"Placement on {result['dataset']}, measured pairs, each left out of the training of who predicts it\n")
        for mode, found in result["which_of_two"].items():  # type: ignore[attr-defined]
            for name, one in found.items():
                share = 100 * one["right"] / one["decided"] if one["decided"] else float("nan")
                print(f"which of two hosts, {mode:9} {name:9} {one['right']}/{one['decided']} right ({share:.1f} %), "
                      f"{one['asked'] - one['decided']} of {one['asked']} inside the noise")  # fmt: skip
        print()
        for mode, found in result["streams"].items():  # type: ignore[attr-defined]
            print(f"{STREAMS} streams of {2 * HOSTS} on {HOSTS} hosts, {mode}: mean T/B and regret")
            for name, one in found.items():
                print(f"  {name:22} {one['mean_ratio']:.3f}  {one['regret_percent']:5.1f} %")


if __name__ == "__main__":
    main()
