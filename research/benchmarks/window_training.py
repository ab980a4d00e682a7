"""Training from the windows of a calm cloud: what is gained where there is contention, and what it costs. Simulated.

Hosts have 64 CPUs and 30 VMs (others 16, 48 and 96 CPUs, to which the model is applied without having seen such). Nine
shares in ten have no contention. Each VM gets a known function of the analytic model's share, with noise, so that it is
known how much can be learned: the error of that function itself.

    python -m research.benchmarks.window_training --windows 10000 [--seen TIMES] [--processes COUNT]

With --seen each demand is that of so many windows, which differ in their noise: a million windows are then made in less
time than it takes to learn from them. The time to make them does not count.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.data.dataset import load_dataset
from models.data.scene import ProfileTable, build_batch
from models.data.window_dataset import CALM, SharedWindow, WindowSample, write_chosen
from models.evaluation.gate import gate
from models.executor import executor
from models.physics.prior import PriorPredictor, solve
from models.training import fit_predictor
from profiler.demand import Demand
from profiler.observed import Host, Instance

DAYS = 14
NOISE = 0.25  # of the logarithm of the loss
AT_ONCE = 250
OF_A_TEST = 400  # windows
_OF = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def windows(count: int, hosts: int, pcpus: int, seed: int, seen: int = 1) -> Iterator[tuple[SharedWindow, Floats]]:
    """So many windows of hosts of one size over DAYS, in order of time, each with the true shares without noise, and
    each demand `seen` so often."""
    random = np.random.default_rng(seed)
    vms = round(30 * pcpus / 64)
    means = random.gamma(2.0, 0.5, (hosts, vms))
    sizes = random.choice([2, 4, 8], (hosts, vms))
    usual = np.clip(random.normal(0.55, 0.1, hosts), 0.2, 0.75)
    demands = -(-count // seen)
    for start in range(0, demands, AT_ONCE):
        some = range(start, min(start + AT_ONCE, demands))
        scenes, ends = [], []
        for number in some:
            host = int(random.integers(hosts))
            ends_s = 1.8e9 + DAYS * 86_400 * number / demands
            day = 1 + 0.35 * np.sin(2 * np.pi * (ends_s % 86_400) / 86_400)
            busy = usual[host] * day * random.lognormal(0, 0.35)
            demanded = means[host] * random.gamma(4.0, 0.25, vms)
            demanded = np.minimum(demanded * busy * pcpus / demanded.sum(), 0.98 * sizes[host])
            there = tuple(
                Instance(
                    f"h{seed}-{host}-vm{at}",
                    vcpus=int(sizes[host, at]),
                    demand={"cpu": Demand(float(demanded[at]), common=0.0, windows=1.0, origin="measured")},
                )
                for at in range(vms)
            )
            scenes.append((Host(f"h{seed}-{host}", "kvm", pcpus=pcpus, memory_mb=1e5), there))
            ends.append(ends_s)
        prior = solve(build_batch(scenes, ProfileTable.build(())))
        share = prior.share
        # Who may use few CPUs for its size loses more than the model says, others less.
        size = np.array([[one.vcpus for one in there] for _, there in scenes])
        true = np.minimum(share ** np.array([0.0, 0.45, 0.7, 0.0, 1.5])[size // 2], 1.0)
        noise = np.exp(random.normal(0, NOISE, (seen, *true.shape)))
        noisy = np.clip(true**noise, 0.01, 1.0)  # the loss varies
        for at, (host_there, there) in enumerate(scenes):
            for turn, shares in enumerate(noisy[:, at].tolist()):
                measured = dict(zip((one.id for one in there), shares, strict=True))
                yield SharedWindow(host_there, there, measured, ends[at] + turn), true[at]


def cpu_s() -> float:
    """CPU time of this process and of those that it waited for."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _OF))


def errors(found: Sequence[tuple[SharedWindow, Floats]], predictor: object) -> tuple[Floats, Floats, Floats]:
    """|measured - predicted|, the analytic model's and the true function's, of contended rows; (R,) each."""
    batch = build_batch([(one.host, one.instances) for one, _ in found], ProfileTable.build(()))
    measured = np.array([list(one.shares.values()) for one, _ in found])
    truth = np.array([true for _, true in found])
    analytic = PriorPredictor().predict(batch, ("throughput",)).throughput.expected
    learned = predictor.predict(batch, ("throughput",)).throughput.expected  # type: ignore[attr-defined]
    short = np.minimum(measured, analytic) < CALM
    return tuple(np.abs(measured - one)[short] for one in (learned, analytic, truth))


def main() -> None:
    """Train, and print what it gave and took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--seen", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    sample, chosen_s, calm, calm_shares, shares = WindowSample(), 0.0, 0, 0, 0
    for one, _ in windows(options.windows, options.hosts, 64, 0, options.seen):
        begun = time.process_time()
        sample.add(one)
        chosen_s += time.process_time() - begun
        there = np.array(list(one.shares.values()))
        calm, calm_shares, shares = (
            calm + (there.min() >= CALM),
            calm_shares + (there >= CALM).sum(),
            shares + len(there),
        )
    print(
        f"{options.windows} windows, {shares} shares; calm: {calm / options.windows:.1%}, {calm_shares / shares:.1%}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        begin, cpu = time.monotonic(), cpu_s()
        write_chosen(Path(folder), "windows", sample.chosen())
        wrote = cpu_s() - cpu
        dataset = load_dataset(Path(folder))
        read = cpu_s() - cpu - wrote
        with executor(options.processes) as run:
            model = fit_predictor([replace(dataset)], run=run)
        took, waited = cpu_s() - cpu, time.monotonic() - begin
    memory = sum(resource.getrusage(one).ru_maxrss for one in _OF) / 2**20  # of this process, and of the largest other
    print(
        f"{chosen_s + took:.0f} s of CPU time ({chosen_s:.0f} to choose, {wrote:.0f} to write, {read:.0f} to read), "
        f"{waited:.0f} s from writing on, {memory:.2f} GB",
        flush=True,
    )
    assert model.share is not None
    verdict = gate(model.share.held_out, None)
    print("passed" if verdict.passed else "refused", *verdict.reasons, sep="\n  ", flush=True)
    for pcpus in (64, 16, 48, 96):
        learned, analytic, truth = errors(list(windows(OF_A_TEST, 8, pcpus, 1)), model)
        gained = (analytic.mean() - learned.mean()) / (analytic.mean() - truth.mean())
        print(
            f"| {pcpus} | {len(learned)} | {analytic.mean():.4f} | {learned.mean():.4f} | {truth.mean():.4f} "
            f"| {gained:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
