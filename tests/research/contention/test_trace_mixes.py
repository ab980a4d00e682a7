"""Means alone beside simulated hosts that follow a made-up trace."""

import gzip
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from research.contention import trace_mixes
from research.contention.trace_mixes import TraceHost, days_of, errors_of, fluid, hosts_of, scaled, simulated, table


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One day of 60 VMs, in PlanetLab's form, whose use varies by half of its mean."""
    rng = np.random.default_rng(8)
    means = rng.uniform(10, 50, 60)
    rows = (np.clip(rng.normal(mean, mean / 2, 288), 0, 100).round(1) for mean in means)
    path = tmp_path_factory.mktemp("traces") / "made-up.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"vm{at}," + ",".join(map(str, row)) + "\n" for at, row in enumerate(rows))
    return path


def _host(trace: Path, name: str) -> TraceHost:
    return next(host for host in hosts_of("made", days_of(trace), 1) if host.spec.id.startswith(f"made-{name}-"))


def test_hosts_ask_for_their_load_and_each_vm_for_its_mean(trace: Path) -> None:
    for host in islice(hosts_of("made", days_of(trace), 1), 36):
        load = float(host.spec.id.split("-")[4])
        assert host.demand.sum(axis=1).mean() == pytest.approx(load * host.spec.cpus)
        assert host.demand.mean(axis=0) == pytest.approx([one.demand_cpus for one in host.spec.instances])


def test_loops_are_compared_on_the_same_demand(trace: Path) -> None:
    closed, opened, both = (_host(trace, f"own-{loops}-16-0.94") for loops in ("closed", "open", "both"))
    assert (closed.demand == opened.demand).all()
    assert (closed.demand == both.demand).all()
    assert {one.loop for one in both.spec.instances} == {"closed", "open"}


def test_a_shape_is_stretched_to_a_mean_within_the_vcpu_or_left_out() -> None:
    shape = np.array([0.0, 0.1, 0.2, 0.3])
    found = scaled(shape, 0.4)
    assert found is not None
    assert found.mean() == pytest.approx(0.4)
    assert found.max() <= 1.0
    assert scaled(shape, 0.75) is None, "it is busy for three quarters of the time at most"


def test_without_bursts_a_host_lacks_what_is_above_its_cpus(trace: Path) -> None:
    host = _host(trace, "own-closed-16-0.60")
    lacking = TraceHost(host.spec, np.array([[8.0, 16.0], [4.0, 4.0]]), 0)
    assert fluid(lacking) == (pytest.approx(24 / 32), 0.5)


def test_means_alone_are_near_what_was_simulated_and_nothing_is_simulated_twice(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [_host(trace, f"{kind}-closed-16-{load}") for kind in ("own", "scaled") for load in ("0.60", "0.94")]
    found = simulated(hosts, tmp_path / "found.jsonl.gz")
    monkeypatch.setattr(trace_mixes, "simulate", None)
    for again, first in zip(simulated(hosts, tmp_path / "found.jsonl.gz"), found, strict=True):
        assert again.spec == first.spec
        assert again.outcome.short == pytest.approx(first.outcome.short, abs=1e-5)
    errors = [errors_of(record) for record in found]
    assert max(float(np.abs(one.share).mean()) for one in errors) <= 0.03
    assert max(float(np.abs(one.short).mean()) for one in errors) <= 0.05
    assert all(one.held.mean() >= 0.85 for one in errors)
    assert table(found).count("made") == 3, "both loads together, and each"
