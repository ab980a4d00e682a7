"""Probe results as features: of the platform and of the instance itself, never a pressure on neighbours."""

from __future__ import annotations

from pathlib import Path

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.features.examples import build_examples, metrics_of
from models.features.probe_features import with_probe_features
from profiler.observed import Colocation, Host, Instance, Outcome


def dataset() -> Dataset:
    outcomes = tuple(
        Outcome(Instance(id=name, vcpus=1, workload=name), "throughput", 100.0, 60.0, "1/s") for name in ("a", "b")
    )
    host = Host(id="p", platform="p", kind="lxc", pcpus=2, memory_mb=1024.0)
    profiles = tuple(WorkloadProfile(name, {"cpu": 50.0}, "p") for name in ("a", "b"))
    probes = {("p", ""): {"rtt.median": 0.3, "rtt.samples": 60.0}, ("p", "a"): {"disk.read_small_mean": 5.0}}
    runs = (Colocation("r", "p", "1", outcomes),)
    return Dataset("d", "measured", Path(), {}, {"p": host}, profiles, runs, "", probes=probes)


def test_chosen_values_become_numbers_of_the_platform_and_of_the_workload_itself() -> None:
    data = with_probe_features(dataset())
    metrics = metrics_of([data])
    assert metrics == ("cpu", "probe.disk.read_small_mean", "platform.probe.rtt.median")
    examples = build_examples([data], metrics)
    of = dict(zip(examples.names, examples.x.T, strict=True))
    assert of["platform.probe.rtt.median"].tolist() == [0.3, 0.3]
    assert str(of["own probe.disk.read_small_mean"].tolist()) == "[5.0, nan]"
    assert not [name for name in examples.names if name.startswith(("near probe", "host probe"))]


def test_without_being_asked_for_they_are_no_features() -> None:
    assert metrics_of([dataset()]) == ("cpu",)
