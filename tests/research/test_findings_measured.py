"""The measured column: values with intervals from runs of the lab, and verdicts that do not bend."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from models.data.tables import DatasetError
from research.findings.claim_registry import NUMBERS, ORDERS
from research.findings.claim_values import against, over
from research.findings.lab_runs import LabRun, LabRuns, RunMember
from research.findings.measured_column import fill, read_remarks
from research.findings.paper_statements import read_statements, row

ROOT = Path(__file__).resolve().parents[2]
RUNS = "run,repeat,kind,pinning\n"
OUTCOMES = "run,repeat,instance,workload,outcome,value,unit\n"
COLOCATIONS = (
    "run,platform,instance,workload,load,vcpus,pinning,driver_cpus,cap_percent,weight,net_mode,net_rate_mbit,"
    "disk_limit_mb_s,outcome,solo,colocated,unit,repeat\n"
)


def _lab(tmp_path: Path, first: float = 50.0, second: float = 40.0) -> LabRuns:
    """One pair of 1 KB servers on one CPU in four rounds."""
    directory = tmp_path / "lab"
    directory.mkdir()
    (directory / "runs.csv").write_text(RUNS + "".join(f"same:a,{n},group,same\n" for n in (1, 2, 3, 4)))
    (directory / "outcomes.csv").write_text(
        OUTCOMES + "".join(f"same:a,{n},web-1k.1,web-1k,retries,{n},1\n" for n in (1, 2, 3, 4))
    )
    lines = [
        f"same:a,lab,web-1k.{place},web-1k,1,1,0:0,,,,shared,500,,throughput,100,{value},req/s,{n}\n"
        for n in (1, 2, 3, 4)
        for place, value in ((1, first), (2, second))
    ]
    (directory / "colocations.csv").write_text(COLOCATIONS + "".join(lines))
    metrics = (
        "run,repeat,instance,workload,scope,metric,value,unit\n"
        "same:a,1,web-1k.1,web-1k,instance,waiting,40,%\n"
        "same:a,1,web-1k.2,web-1k,instance,waiting,60,%\n"
        "same:a,1,,,driver_domain,waiting,7,%\n"
    )
    (directory / "metrics.csv.gz").write_bytes(gzip.compress(metrics.encode()))
    return LabRuns.of([directory])


def test_runs_are_read_with_outcomes_solo_values_and_metrics(tmp_path: Path) -> None:
    [first, *_others] = _lab(tmp_path).runs("web-1k", "web-1k")
    assert [member.ratio() for member in first.members] == [0.5, 0.4]
    assert first.members[0].reached["retries"] == 1
    assert first.metric("instance", "waiting", "web-1k.2") == 60
    assert first.metric("driver_domain", "waiting") == 7
    assert first.metric("host", "event") is None


def test_runs_of_other_workloads_are_not_taken(tmp_path: Path) -> None:
    lab = _lab(tmp_path)
    assert lab.runs("web-1k", "web-100k") == []
    assert lab.runs("web-1k") == []
    assert lab.runs("web-1k", "web-1k", "web-1k") == []


def test_a_claim_fills_its_row_and_is_judged_by_the_printed_figure(tmp_path: Path) -> None:
    statements = read_statements(ROOT / "datasets" / "papers")
    rows = [
        row("N5", "1k-loss", "throughput_loss", "58 %", None),
        row("N5", "guest-waiting", "waiting", "~ 34 %", None),
    ]
    fill(rows, _lab(tmp_path), statements)
    assert rows[0]["measured_value"] == pytest.approx(55)
    assert rows[0]["measured_verdict"] == "agrees"
    assert rows[0]["measured_coverage"] == pytest.approx(0.875)
    assert rows[1]["measured_value"] == pytest.approx(50)
    assert rows[1]["measured_verdict"] == "undetermined"  # only one round has it
    assert rows[1]["measured_coverage"] is None


def test_a_claim_without_runs_leaves_its_row_as_it_is() -> None:
    rows = [row("N5", "1k-loss", "throughput_loss", "58 %", None)]
    fill(rows, LabRuns(()), read_statements(ROOT / "datasets" / "papers"))
    assert rows[0]["measured"] == "not measured here"
    assert rows[0]["measured_verdict"] is None


def test_every_claim_measures_something_that_is_printed_or_predicted() -> None:
    statements = read_statements(ROOT / "datasets" / "papers")
    findings = {finding for finding, _ in statements}
    for finding, situation in NUMBERS:
        assert (finding, situation) in statements or NUMBERS[finding, situation].unit, (finding, situation)
        assert finding in findings
    for finding, situation in ORDERS:
        assert statements[finding, ORDERS[finding, situation].statement]["relation"] == "order", (finding, situation)


def test_values_are_matched_by_round() -> None:
    def run(repeat: str, reached: float, dataset: str = "lab") -> LabRun:
        return LabRun(
            dataset, "lab", "r", repeat, "group", "same", (RunMember("a", "a", reached={"throughput": reached}),), {}
        )

    def quotient(one: LabRun, base: LabRun) -> float:
        return one.members[0].reached["throughput"] / base.members[0].reached["throughput"]

    matched = against([run("1", 10), run("2", 20), run("3", 30)], [run("2", 10), run("1", 10)], quotient)
    assert matched is not None
    assert matched.values == (1.0, 2.0)
    assert over([], lambda _run: 1.0) is None
    several = over([run("1", 10), run("1", 20), run("2", 5)], lambda one: one.members[0].reached["throughput"])
    assert several is not None
    assert several.values == (15, 5)  # a round has one value, however often it ran
    assert against([run("1", 10)], [run("1", 10, "another")], quotient) is None


def test_remarks_need_their_columns(tmp_path: Path) -> None:
    (tmp_path / "findings.csv").write_text("finding,text\nN1,x\n")
    with pytest.raises(DatasetError, match="column remark is missing"):
        read_remarks([tmp_path])
    (tmp_path / "findings.csv").write_text("finding,remark\nN1,It agrees.\n")
    assert read_remarks([tmp_path]) == {"N1": "It agrees."}


def test_remarks_that_are_not_text_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "findings.csv").write_bytes(b"finding,remark\nN1,\xff\n")
    with pytest.raises(DatasetError, match=rf"^{tmp_path.name}: findings\.csv, line 2: it is not UTF-8 text"):
        read_remarks([tmp_path])


def test_printed_tables_that_are_missing_or_lack_a_column_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"statements\.csv cannot be read"):
        read_statements(tmp_path)
    (tmp_path / "statements.csv").write_text("finding,statement\nN1,x\n")
    with pytest.raises(DatasetError, match="column quantity is missing"):
        read_statements(tmp_path)


def test_a_damaged_table_names_its_dataset(tmp_path: Path) -> None:
    _lab(tmp_path)
    packed = tmp_path / "lab" / "metrics.csv.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(DatasetError, match=r"^lab: metrics\.csv\.gz is not a whole gzip file"):
        LabRuns.of([tmp_path / "lab"]).runs("web-1k", "web-1k")
