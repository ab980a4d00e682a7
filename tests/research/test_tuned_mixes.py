"""The campaign of tuned mixes: its plan follows from the seed, and its table from the runs, by their definitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from research.contention.container_mixes import Mix, mix_record
from research.contention.tuned_mixes import WAYS, _read, judged, main, mixes


def runs(planned: list[Mix], shares: Mapping[str, float]) -> list[str]:
    """Lines of runs in which each instance gets the share of its way."""
    lines = []
    for mix in planned:
        record = mix_record(mix)
        for container in record["hosts"][0]["containers"]:
            container["outcome"] = {"share": shares[mix.placement]}
        lines.append(json.dumps(record | {"disturbed": False, "machine": {}}))
    return lines


def test_every_way_of_a_mix_runs_in_each_round_with_the_same_work() -> None:
    planned = mixes(4, 2, 0, seed=5)
    assert len(planned) == 4 * 2 * len(WAYS)
    assert [mix.id for mix in planned] == [mix.id for mix in mixes(4, 2, 0, seed=5)]
    work = {
        (mix.instances, one.spec.id, one.seed, one.spec.demand_cpus)
        for mix in planned for one in mix.hosts[0].containers
    }  # fmt: skip
    assert len(work) == sum(len(mix.hosts[0].containers) for mix in planned) // (2 * len(WAYS))
    for mix in planned:
        if mix.placement == "unpinned":
            assert all(one.spec.pin == () and one.spec.weight == 256 for one in mix.hosts[0].containers)


def test_the_gain_of_a_way_is_its_lowest_share_over_that_as_it_is(tmp_path: Path) -> None:
    planned = [mix for mix in mixes(3, 1, 0, seed=5) if mix.placement in ("as_it_is", "tuned")]
    file = tmp_path / "runs"
    file.write_text("\n".join(runs(planned, {"as_it_is": 0.5, "tuned": 0.75})) + "\n", encoding="ascii")
    (head, _, as_it_is, tuned, *_) = judged(_read(file))
    assert head.count("|") == as_it_is.count("|") == tuned.count("|")
    assert as_it_is.split(" | ")[:3] == ["| as_it_is", "3", "0.500"]
    assert "+0.250 (+0.250 to +0.250)" in tuned
    assert main([str(file), "--judge"]) == 0


def test_a_disturbed_run_does_not_count(tmp_path: Path) -> None:
    planned = [mix for mix in mixes(2, 1, 0, seed=5) if mix.placement in ("as_it_is", "tuned")]
    lines = runs(planned, {"as_it_is": 0.5, "tuned": 0.75})
    lines.append(json.dumps(json.loads(lines[0]) | {"disturbed": True}))
    file = tmp_path / "runs"
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
    assert {mix: set(ways) for mix, ways in _read(file).items()} == {
        mix: {"as_it_is", "tuned"} for mix in ("m000", "m001")
    }
