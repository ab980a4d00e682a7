"""The measured column: values with intervals from runs of the lab, and verdicts that do not bend."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.tables import DatasetError
from research.findings.claim_registry import NUMBERS, ORDERS
from research.findings.claim_values import Values, against, agrees, ordered, over
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


def _printed(relation: str, value: str = "", unit: str = "%", low: str = "", high: str = "") -> dict[str, str]:
    return {"relation": relation, "value": value, "unit": unit, "low": low, "high": high}


def _values(*values: float) -> Values:
    return Values(values, "lab")


def _lab(tmp_path: Path, first: float = 50.0, second: float = 40.0) -> LabRuns:
    """One pair of 1 KB servers on one CPU in two rounds."""
    directory = tmp_path / "lab"
    directory.mkdir()
    (directory / "runs.csv").write_text(RUNS + "".join(f"same:a,{n},group,same\n" for n in (1, 2)))
    (directory / "outcomes.csv").write_text(
        OUTCOMES + "".join(f"same:a,{n},web-1k.1,web-1k,retries,{n},1\n" for n in (1, 2))
    )
    lines = [
        f"same:a,lab,web-1k.{place},web-1k,1,1,0:0,,,,shared,500,,throughput,100,{value},req/s,{n}\n"
        for n in (1, 2)
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
    [first, _second] = _lab(tmp_path).runs("web-1k", "web-1k")
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
    assert rows[0]["measured_agrees"] is True
    assert rows[1]["measured_value"] == pytest.approx(50)
    assert rows[1]["measured_agrees"] is None  # one round has no interval


def test_a_claim_without_runs_leaves_its_row_as_it_is() -> None:
    rows = [row("N5", "1k-loss", "throughput_loss", "58 %", None)]
    fill(rows, LabRuns(()), read_statements(ROOT / "datasets" / "papers"))
    assert rows[0]["measured"] == "not measured here"
    assert rows[0]["measured_agrees"] is None


def test_every_claim_measures_something_that_is_printed_or_predicted() -> None:
    statements = read_statements(ROOT / "datasets" / "papers")
    findings = {finding for finding, _ in statements}
    for finding, situation in NUMBERS:
        assert (finding, situation) in statements or NUMBERS[finding, situation][1], (finding, situation)
        assert finding in findings
    for finding, situation in ORDERS:
        assert statements[finding, ORDERS[finding, situation][1]]["relation"] == "order", (finding, situation)


@pytest.mark.parametrize(
    ("printed", "values", "verdict"),
    [
        (_printed("=", "58"), (55.0, 56.0, 57.0), True),
        (_printed("~", "34"), (49.0, 50.0, 51.0), False),
        (_printed(">=", "25"), (-90.0, -80.0, -85.0), False),
        (_printed("<", "50"), (10.0, 20.0, 15.0), True),
        (_printed("range", low="40", high="50"), (44.0, 45.0, 46.0), True),
        (_printed("range", low="40", high="50"), (60.0, 61.0, 62.0), False),
        (_printed("=", "570", unit="Mbps"), (9000.0, 9100.0), None),
        (_printed("direction", "down"), (-0.3, -0.25, -0.2), True),
        (_printed("direction", "up"), (-0.3, -0.25, -0.2), False),
        (_printed("direction", "flat"), (0.01, 0.02, 0.0), True),
        (_printed("direction", "flat"), (0.3, 0.31, 0.32), False),
    ],
)
def test_verdicts(printed: dict[str, str], values: tuple[float, ...], verdict: bool | None) -> None:
    assert agrees(printed, Values(values, "lab")) is verdict


def test_an_order_is_kept_where_the_intervals_do_not_contradict_it() -> None:
    printed = _printed("order", "a>b,c", "")
    assert ordered(printed, {"a": _values(3, 3.1), "b": _values(2, 2.1), "c": _values(1, 1.1)})[1] is True
    assert ordered(printed, {"a": _values(1, 1.1), "b": _values(2, 2.1), "c": _values(3, 3.1)})[1] is False
    assert ordered(printed, {"a": _values(2, 3), "b": _values(2.4, 3.4), "c": _values(1, 1.1)})[1] is True
    assert ordered(printed, {"a": _values(3, 3.1), "b": _values(2, 2.1)})[1] is None
    assert ordered(printed, {"a": _values(3, 3.1), "b": _values(2, 2.1), "c": _values(1)})[1] is None  # measured once


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
    assert against([run("1", 10)], [run("1", 10, "another")], quotient) is None


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=12))
def test_the_interval_holds_the_median(values: list[float]) -> None:
    measured = Values(tuple(values), "lab")
    lower, upper = measured.bounds
    assert lower <= measured.middle <= upper


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
