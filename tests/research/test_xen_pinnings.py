"""Tables of pairs in the CPU configurations of a Xen host: intervals over rounds, verdicts by them, costs alone."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from research.xen_pinnings import configurations, costs, main, orders, read_metrics, read_pairs


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Six rounds: 3-1-1 has half of what 1-1-1 has in each; 2-1-1 now more, now less than 3-1-1."""
    rows = ["run,repeat,instance,outcome,solo,colocated,ratio_se"]
    for repeat in range(6):
        for configuration, rate in (("1-1-1", 100), ("3-1-1", 50), ("2-1-1", 50 + (-5) ** (repeat % 2))):
            rows += [f"{configuration}:a:a,{repeat},a.{one},throughput,200,{rate},0.01" for one in (1, 2)]
        rows.append(f"1-1-1:a:a,{repeat},a.1,latency_mean_ms,1,2,0.1")
    (tmp_path / "colocations.csv").write_text("\n".join(rows) + "\n")
    metrics = ["run,repeat,instance,workload,scope,metric,value,unit"]
    for run in ("solo:a:1:1:driver0", "1-1-1:a:a"):
        metrics += [f"{run},1,,,driver_domain,cpu,50,%", f"{run},1,,,driver_domain,pages_exchanged,1000,pages/s"]
        metrics += [f"{run},1,a.1,a,driver_domain,cpu,25,%", f"{run},1,,,host,event,500,events/s"]
    with gzip.open(tmp_path / "metrics.csv.gz", "wt") as file:
        file.write("\n".join(metrics) + "\n")
    return tmp_path


def test_a_configuration_has_its_rounds_interval_and_metrics(dataset: Path) -> None:
    table = configurations(read_pairs(dataset), read_metrics(dataset), "a:a")
    assert table[2].startswith("| (1, 1, 1) | 6 | 0.50 (0.50-0.50) | 0.000 | 0.010 | 200 | 50 |")
    assert len(table) == 5


def test_an_order_is_undetermined_where_the_interval_holds_both(dataset: Path) -> None:
    told = orders(read_pairs(dataset), "a:a")
    assert [line.partition(": ")[2].partition(";")[0] for line in told] == ["agrees", "undetermined"]
    assert told[0].endswith("the second has 0.50 (0.50-0.50) of the first's rate")


def test_alone_a_page_costs_dom0_its_time(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert costs(read_metrics(dataset))[2] == "| `a` | 50 | 1000 | 500 |  | 500 | 2.00 |"
    assert main([str(dataset)]) == 0
    assert "**a:a**" in capsys.readouterr().out


def test_what_is_no_such_dataset_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "colocations.csv").write_text("run,repeat,instance,outcome,solo,colocated\na:b,1,b.1,throughput,1,1\n")
    for path in (tmp_path, tmp_path / "nowhere"):
        assert main([str(path)]) == 1
        assert capsys.readouterr().err.count("\n") == 1
