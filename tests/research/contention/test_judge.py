"""Predictions judged: a perfect one has no error, a worse one has what it is wrong by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.contention import baselines, judge, records
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec
from research.contention.records import HostRecord


def record(number: int) -> HostRecord:
    cpus, share = 2, 0.95 - 0.1 * number
    instances = tuple(
        InstanceSpec(f"i{k}", 1, 0.3 + 0.15 * number, "open", 10.0, weight=256.0 * (1 + number % 2)) for k in range(4)
    )
    outcome = InstanceOutcome(share, 1 - share, 0.5 - share / 2, share, 1 - share)
    outcomes = HostOutcome({one.id: outcome for one in instances}, 1 - share)
    return HostRecord(
        HostSpec(f"h{number}", cpus, instances),
        outcomes,
        "simulated",
        cloud=f"c{number % 2}",
        share_error=dict.fromkeys(outcomes.instances, 0.004),
    )


FOUND = [record(number) for number in range(8)]


def truth(hosts: Sequence[HostSpec]) -> list[HostOutcome]:
    by_name = {one.spec.id: one.outcome for one in FOUND}
    return [by_name[host.id] for host in hosts]


def too_good(hosts: Sequence[HostSpec]) -> list[HostOutcome]:
    return [
        HostOutcome({k: replace(v, share=v.share + 0.05, short=v.short - 0.02) for k, v in one.instances.items()}, 0.0)
        for one in truth(hosts)
    ]


def test_the_truth_has_no_error_and_orders_the_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts.jsonl.gz"
    records.write(path, FOUND)
    table = judge.compare(truth, path)
    assert table.figure("MAE of share").value == pytest.approx(0.0, abs=1e-5)
    assert table.figure("MAE of short, points").high == pytest.approx(0.0, abs=1e-3)
    for by in ("mean", "worst"):
        assert table.figure(f"Spearman of hosts by {by} share").value == pytest.approx(1.0)
        assert table.figure(f"Spearman within clouds by {by} share").value == pytest.approx(1.0)


def test_a_wrong_prediction_has_the_error_that_it_is_wrong_by() -> None:
    table = judge.judge(too_good, FOUND)
    for group in ("all", "load 0.00 to 0.70", "1 to 8 CPUs", "open", "hosts without caps"):
        assert table.figure("MAE of share", group).value == pytest.approx(0.05)
    assert table.figure("MAE of short, points").value == pytest.approx(2.0)
    assert table.figure("MAE of the host's short, points").value == pytest.approx(40.0)
    assert table.figure("Spearman of hosts by mean share").value == pytest.approx(1.0)


def test_an_interval_is_over_hosts_and_holds_the_figure() -> None:
    figure = judge.judge(baselines.fluid_of_means, FOUND).figure("MAE of share")
    assert figure.low < figure.value < figure.high


def test_the_table_names_both_baselines_and_no_empty_group() -> None:
    text = str(judge.judge(truth, FOUND))
    assert "fluid of means" in text
    assert "one M/G/1-PS queue" in text
    assert "nan" not in text
    assert "hog" not in text


def test_hosts_that_a_prediction_does_not_tell_apart_are_not_in_order() -> None:
    assert judge.rank_correlation(np.ones(5), np.arange(5.0)) == 0.0
    assert judge.rank_correlation(np.arange(5.0), np.arange(5.0)) == pytest.approx(1.0)
    assert judge.rank_correlation(-np.arange(5.0), np.arange(5.0)) == pytest.approx(-1.0)


def test_a_prediction_that_leaves_an_instance_out_is_refused() -> None:
    with pytest.raises(ValueError, match="hosts predicted of 8"):
        judge.judge(lambda hosts: truth(hosts)[1:], FOUND)
    with pytest.raises(ValueError, match="is not predicted"):
        judge.judge(lambda hosts: [HostOutcome({}, 0.0) for _ in hosts], FOUND)
    with pytest.raises(ValueError, match="no host"):
        judge.judge(truth, [])


def test_the_fluid_of_means_knows_weights_caps_and_pins() -> None:
    hogs = InstanceSpec("a", 2, 2.0, "hog", 10.0, weight=300.0), InstanceSpec("b", 2, 2.0, "hog", 10.0, weight=100.0)
    capped = InstanceSpec("a", 2, 1.0, "open", 10.0, cap_cpus=0.5)
    pinned = tuple(InstanceSpec(name, 1, 0.8, "open", 10.0, pin=(0,)) for name in "ab")
    found = baselines.fluid_of_means([HostSpec("x", 2, hogs), HostSpec("y", 2, (capped,)), HostSpec("z", 2, pinned)])
    shares = [[one.share for one in host.instances.values()] for host in found]
    assert shares[0] == pytest.approx([0.75, 0.25])
    assert shares[1] == pytest.approx([0.5])
    assert shares[2] == pytest.approx([0.625, 0.625])


def test_one_queue_has_a_share_of_one_less_the_load() -> None:
    (found,) = baselines.single_queue([HostSpec("x", 4, (InstanceSpec("a", 2, 1.0, "open", 10.0),))])
    assert found.instances["a"].share == pytest.approx(0.75)
    assert found.short == pytest.approx(0.0625)
