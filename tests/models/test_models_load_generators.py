"""Load generators of a dataset's runs count as consumers of CPU time in the prior's value, and as nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.dataset import DatasetError, load_dataset
from models.data.scene import ProfileTable, build_batch
from models.features.examples import Examples, build_examples, further_metrics
from models.physics.prior import solve
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings, Pinning
from tests.models.synthetic import COLOCATION_COLUMNS, PLATFORM_COLUMNS, PROFILE_COLUMNS

RUNS = "run,repeat,kind,instance,clients,generator_percent\n"
ROW = {"platform": "p", "load": "1", "vcpus": "1", "outcome": "throughput", "solo": "100", "unit": "x", "repeat": "1"}


def write(path: Path, runs: str | None, *, run: str = "pair", description: str = "") -> Path:
    """A host of one CPU's worth of `server` beside `spin`, each on a CPU of its own; tables as CSV."""
    rows = [
        {**ROW, "run": run, "instance": "server.1", "workload": "server", "pinning": "0:0", "colocated": "60"},
        {**ROW, "run": run, "instance": "spin.2", "workload": "spin", "pinning": "0:1", "colocated": "70"},
    ]
    profiles = [
        {"platform": "p", "workload": name, "load": "1", "scope": scope, "metric": metric, "value": value}
        for name, scope, metric, value in (
            ("server", "instance", "cpu", "90"),
            ("server", "host", "load_generator_cpu", "60"),
            ("spin", "instance", "cpu", "100"),
        )
    ]
    platform = [{"platform": "p", "kind": "lxc", "pcpus": "2", "memory_mb": "4096"}]
    path.mkdir()
    for name, columns, table in (
        ("colocations", COLOCATION_COLUMNS, rows),
        ("profiles", PROFILE_COLUMNS, profiles),
        ("platforms", PLATFORM_COLUMNS, platform),
    ):
        lines = [",".join(columns), *(",".join(one.get(column, "") for column in columns) for one in table)]
        (path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (path / "dataset.yaml").write_text(f"name: g\norigin: measured\nsolo: own settings\n{description}")
    if runs is not None:
        (path / "runs.csv").write_text(RUNS + runs)
    return path


def examples(path: Path) -> Examples:
    dataset = load_dataset(path)
    return build_examples([dataset], further_metrics([dataset]))


def base(found: Examples) -> dict[str, float]:
    return {victim: float(value) for victim, value in zip(found.victim, found.base, strict=True)}


def test_a_neighbours_generator_on_its_cpu_slows_an_instance(tmp_path: Path) -> None:
    found = base(examples(write(tmp_path / "d", "pair,1,group,server.1,1,20\n")))
    host = Host(id="p", kind="lxc", pcpus=2, memory_mb=4096, platform="p")
    table = ProfileTable.build(load_dataset(tmp_path / "d").profiles)
    on_one = IsolationSettings(pinning=Pinning(((1,),)))
    spin = Instance(id="spin.2", vcpus=1, workload="spin", settings=on_one)
    loop = Demand(0.6, windows=1.0, open_loop=0.0, common=0.0)  # what it used while the server ran alone, not 0.2
    generator = Instance(id="other", vcpus=1, settings=on_one, demand={"cpu": loop})
    expected = solve(build_batch([(host, [spin, generator])], table)).throughput[0, 0]
    assert found["spin"] == pytest.approx(float(expected))
    assert found["spin"] < 0.7
    assert found["server"] == pytest.approx(1.0)


def test_the_solo_run_with_the_own_generator_is_what_ratios_are_relative_to(tmp_path: Path) -> None:
    """The generator on the server's own CPU slows it alone as much as beside a neighbour elsewhere."""
    found = base(examples(write(tmp_path / "d", "pair,1,group,server.1,0,20\n")))
    assert found["server"] == pytest.approx(1.0)


def test_a_state_of_an_on_off_run_has_the_generators_of_its_run(tmp_path: Path) -> None:
    whole = base(examples(write(tmp_path / "whole", "pair,1,group,server.1,1,20\n")))
    state = base(examples(write(tmp_path / "state", "pair,1,group,server.1,1,20\n", run="pair/1+2")))
    assert state == pytest.approx(whole)


@pytest.mark.parametrize("description", ["generators: outside\n", "circumstances: {host_cap_percent: 120.0}\n"])
def test_generators_outside_of_the_host_or_of_its_cap_do_not_count(tmp_path: Path, description: str) -> None:
    runs = "pair,1,group,server.1,1,20\n"
    outside = examples(write(tmp_path / "outside", runs, description=description))
    without = examples(write(tmp_path / "without", None))
    assert base(outside) == base(without) == {"server": pytest.approx(1.0), "spin": pytest.approx(1.0)}


def test_generators_are_no_instances(tmp_path: Path) -> None:
    found = examples(write(tmp_path / "d", "pair,1,group,server.1,1,20\n"))
    plain = examples(write(tmp_path / "plain", None))
    assert (found.victim, found.neighbours, found.pair) == (plain.victim, plain.neighbours, plain.pair)
    assert found.size.tolist() == [2, 2]
    crowd = found.names.index("crowd")
    assert (found.x[:, crowd] > plain.x[:, crowd]).any()  # they use CPU time all the same


def test_cpus_of_a_generator_that_cannot_be_read_are_named_by_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"runs\.csv, line 2, column clients: "):
        load_dataset(write(tmp_path / "d", "pair,1,group,server.1,one,20\n"))


def test_a_table_of_runs_of_another_form_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "d", None)
    (path / "runs.csv").write_text("day,note\n1,calm\n")
    assert not any(one.generators for one in load_dataset(path).colocations)
