"""Probe results as features: of the platform, in training and of each host when it is asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.features.examples import build_examples, further_metrics, scene_of
from models.features.feature_matrix import build_matrix, probes_needed, usual_host, with_probe_features
from profiler.observed import PROBED_VALUES, Colocation, Host, Instance, Outcome


def dataset() -> Dataset:
    outcomes = tuple(
        Outcome(Instance(id=name, vcpus=1, workload=name), "throughput", 100.0, 60.0, "1/s") for name in ("a", "b")
    )
    hosts = {name: Host(id=name, platform=name, kind="lxc", pcpus=2, memory_mb=1024.0) for name in ("p", "q")}
    profiles = tuple(WorkloadProfile(name, {"cpu": 50.0}, "p") for name in ("a", "b"))
    probes = {
        ("p", ""): {"rtt.median": 0.3, "rtt.samples": 60.0, "tcp.throughput": 900.0},
        ("q", ""): {"rtt.median": 0.5},
        ("p", "a"): {"disk.read_small_mean": 5.0},
    }
    runs = tuple(Colocation("r", name, "1", outcomes) for name in hosts)
    return Dataset("d", "measured", Path(), {}, hosts, profiles, runs, "", probes=probes)


def test_chosen_values_of_hosts_become_numbers_of_the_platform() -> None:
    data = with_probe_features(dataset())
    metrics = further_metrics([data])
    assert metrics == ("platform.probe.rtt.median", "platform.probe.tcp.throughput")
    assert probes_needed(metrics) == ["rtt.median", "tcp.throughput"]
    examples = build_examples([data], metrics)
    of = dict(zip(examples.names, examples.x.T, strict=True))
    assert of["platform.probe.rtt.median"].tolist() == [0.3, 0.3, 0.5, 0.5]
    assert with_probe_features(data) == data


def test_a_dataset_without_probes_of_hosts_stays_the_same() -> None:
    bare = replace(dataset(), probes={("p", "a"): {"disk.read_small_mean": 5.0}, ("p", ""): {"hops.hop1_median": 1.0}})
    assert with_probe_features(bare) is bare
    assert usual_host([bare]) == {}


def test_what_was_probed_on_a_host_itself_counts_as_its_platforms_did_in_training() -> None:
    data = with_probe_features(dataset())
    metrics = further_metrics([data])
    trained = build_examples([data], metrics)
    scenes = [scene_of(one, dict(data.platforms)) for one in data.colocations]
    found = [{key: value for key, value in data.probes[name, ""].items() if key in PROBED_VALUES} for name in "pq"]
    asked = [(replace(host, probed=one), there) for (host, there), one in zip(scenes, found, strict=True)]
    served = build_matrix(build_batch(asked, ProfileTable.build(data.profiles)), metrics)
    assert served.names == trained.names
    np.testing.assert_array_equal(served.x, trained.x)


def test_an_unprobed_host_counts_as_usual_only_where_training_saw_none_unknown() -> None:
    data = with_probe_features(dataset())
    assert usual_host([data]) == {"probe.rtt.median": 0.4}  # only one has been probed by tcp
    table = ProfileTable.build(data.profiles, {**data.platform_numbers, "": usual_host([data])})
    hosts = [Host("h", "lxc", 2, 1024.0, platform=name) for name in ("", "elsewhere", "p")]
    batch = build_batch([(host, ()) for host in hosts], table)
    assert batch.platform_number("probe.rtt.median").tolist() == [0.4, 0.4, 0.3]
    assert str(batch.platform_number("probe.tcp.throughput").tolist()) == "[nan, nan, 900.0]"
