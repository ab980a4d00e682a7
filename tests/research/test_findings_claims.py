"""Claims compute what the papers print: from the right runs, rounds, members and metrics."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from research.findings.claim_registry import NUMBERS
from research.findings.lab_runs import LabRuns
from research.findings.measured_column import fill
from research.findings.paper_statements import Row, read_statements, row
from tests.models.synthetic import COLOCATION_COLUMNS

ROOT = Path(__file__).resolve().parents[2]
PAIRS_IN_ORDER = ("1k+100k", "1k+50k", "30k+100k", "50k+100k", "1k+1k", "1k+10k")

Members = list[tuple[str, dict[str, str]]]
Runs = Mapping[str, tuple[str, Members, list[list[float]]]]


def _dataset(path: Path, runs: Runs, metrics: str = "") -> Path:
    """A measured dataset: by run (`form:name`) its kind, members and, per round, what each reached, of 100 alone."""
    path.mkdir()
    listed, outcomes = ["run,repeat,kind,pinning"], ["run,repeat,instance,workload,outcome,value"]
    rows = [",".join(COLOCATION_COLUMNS)]
    for run, (kind, members, rounds) in runs.items():
        for repeat, reached in enumerate(rounds, 1):
            listed.append(f"{run},{repeat},{kind},{run.partition(':')[0]}")
            for place, ((workload, with_), value) in enumerate(zip(members, reached, strict=True), 1):
                outcomes.append(f"{run},{repeat},{workload}.{place},{workload},throughput,{value}")
                cells = {
                    "run": run, "repeat": str(repeat), "instance": f"{workload}.{place}", "workload": workload,
                    "load": "1", "outcome": "throughput", "solo": "100", "colocated": str(value), **with_,
                }  # fmt: skip
                if kind == "group":
                    rows.append(",".join(cells.get(column, "") for column in COLOCATION_COLUMNS))
    for name, lines in (("runs", listed), ("outcomes", outcomes), ("colocations", rows)):
        (path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    text = f"run,repeat,instance,scope,metric,value\n{metrics}"
    (path / "metrics.csv.gz").write_bytes(gzip.compress(text.encode()))
    return path


def _web(one: str, other: str) -> Members:
    """Two web servers on a shared uplink."""
    return [(f"web-{size}", {"net_mode": "shared"}) for size in (one, other)]


def _measured(finding: str, situation: str, *datasets: Path) -> tuple[float, ...] | None:
    """The values by which a claim is judged; None where no run shows it."""
    found = NUMBERS[finding, situation].measure(LabRuns.of(datasets))
    return found.values if found else None


def _filled(finding: str, situation: str, *datasets: Path) -> Row:
    one = row(finding, situation, "", "", None)
    fill([one], LabRuns.of(datasets), read_statements(ROOT / "datasets" / "papers"))
    return one


def test_slack_is_what_a_guaranteed_sender_took_and_not_what_any_bulk_sender_did(tmp_path: Path) -> None:
    plain: Members = [("bulk", {"net_mode": "dedicated", "net_rate_mbit": "1000"}), ("stream", {})]
    shared: Members = [("bulk", {"net_mode": "shared", "net_rate_mbit": "300"}), ("stream", {})]
    other = _dataset(tmp_path / "a", {"same:plain": ("group", plain, [[500.0, 8.0]])})
    htb = _dataset(tmp_path / "b", {"same:htb": ("group", shared, [[900.0, 8.0]])})
    slack = _measured("L7", "slack", other, htb)
    assert slack == (pytest.approx(0.9 * 1514 / 1448),)


def test_rates_are_kept_only_where_every_limit_is_kept(tmp_path: Path) -> None:
    payload = 1448 / 1514
    runs: Runs = {
        f"same:{rate}": (
            "group",
            [("bulk", {"net_mode": "dedicated", "net_rate_mbit": str(rate)})] * 2,
            [[payload * rate * kept, payload * rate]] * 4,
        )
        for rate, kept in ((1, 1.0), (10, 1.0), (100, 0.6), (500, 1.0))
    }
    filled = _filled("L7", "sustained-rate", _dataset(tmp_path / "a", runs))
    assert filled["measured_value"] == pytest.approx(40)
    assert filled["measured_verdict"] == "disagrees"


def test_a_capped_program_is_set_against_itself_whatever_was_run_last(tmp_path: Path) -> None:
    runs: Runs = {
        "same:capped": ("group", [("cpu", {"cap_percent": "10"}), ("cpu-hog", {})], [[20.0, 180.0]] * 2),
        "solo:cpu:0": ("solo", [("cpu", {})], [[200.0], [200.0]]),
        "solo:cpu-hog:0": ("solo", [("cpu-hog", {})], [[200.0], [200.0]]),
        "solo:cpu-hog:1": ("solo", [("cpu-hog", {})], [[250.0], [250.0]]),  # another CPU, faster that day
    }
    share = _measured("L5", "latency-cpu-cap-10-competitor: cpu", _dataset(tmp_path / "lab-findings", runs))
    assert share == (pytest.approx(0.1), pytest.approx(0.1))


def test_switches_count_where_the_paper_says_switches_and_events(tmp_path: Path) -> None:
    runs: Runs = {f"{form}:1m": ("group", _web("1m", "1m"), [[50.0, 50.0]] * 2) for form in ("same", "shared")}
    seen = {"same": {"switch": 100, "event": 100}, "shared": {"switch": 150, "event": 101}}
    metrics = "".join(
        f"{form}:1m,{n},,host,{metric},{value}\n"
        for n in (1, 2)
        for form, values in seen.items()
        for metric, value in values.items()
    )
    moved = _measured("N10", "1m-1m-switch-event-change", _dataset(tmp_path / "a", runs, metrics))
    assert moved == (pytest.approx(50), pytest.approx(50))


def test_the_pair_with_most_events_is_compared_with_both_others_of_its_round(tmp_path: Path) -> None:
    pairs = {"same:a": ("1k", "1k", 2), "same:b": ("1k", "100k", 1), "same:c": ("100k", "100k", 2)}
    runs: Runs = {name: ("group", _web(one, other), [[50.0, 50.0]] * n) for name, (one, other, n) in pairs.items()}
    seen = {"same:a": (100, 100), "same:b": (200, 100), "same:c": (300, 110)}
    metrics = "".join(
        f"{name},{n},,host,event,{event}\n{name},{n},,host,switch,{switch}\n"
        for name, (event, switch) in seen.items()
        for n in range(1, pairs[name][2] + 1)
    )
    lab = _dataset(tmp_path / "a", runs, metrics)
    event, both = _measured("N6", "summary-event-over-others", lab), _measured("N15", "net-net", lab)
    assert event == (pytest.approx(1.5),)  # the second round lacks one of the others
    assert both == (pytest.approx(0.1),)  # switches grew least


def test_a_pair_without_the_shared_uplink_is_not_the_papers_situation(tmp_path: Path) -> None:
    apart: Members = [("web-1k", {}), ("web-1k", {"net_mode": "shared"})]
    assert _measured("N5", "1k-loss", _dataset(tmp_path / "a", {"same:x": ("group", apart, [[40.0, 40.0]])})) is None


def test_rounds_of_two_campaigns_are_never_set_against_each_other(tmp_path: Path) -> None:
    mixed: Runs = {"same:x": ("group", _web("1k", "100k"), [[80.0, 80.0]] * 2)}
    alike: Runs = {"same:y": ("group", _web("1k", "1k"), [[40.0, 40.0]] * 2)}
    apart = _dataset(tmp_path / "a", mixed), _dataset(tmp_path / "b", alike)
    assert _measured("N4", "1k-over-1k-1k", *apart) is None
    together = _measured("N4", "1k-over-1k-1k", _dataset(tmp_path / "c", {**mixed, **alike}))
    assert together == (2.0, 2.0)


def test_of_datasets_that_show_a_claim_the_one_with_most_rounds_is_taken(tmp_path: Path) -> None:
    few = _dataset(tmp_path / "a", {"same:x": ("group", _web("1k", "1k"), [[10.0, 10.0]] * 4)})
    many = _dataset(tmp_path / "b", {"same:x": ("group", _web("1k", "1k"), [[42.0, 42.0]] * 6)})
    filled = _filled("N5", "1k-loss", few, many)
    assert (filled["source"], filled["rounds"], filled["measured_value"]) == ("b", 6, pytest.approx(58))
    assert filled["measured_verdict"] == "agrees"


def test_a_small_instance_is_capped_and_alone_on_its_cpu(tmp_path: Path) -> None:
    probe: Members = [("cpu-share", {"cap_percent": "50"}), ("cpu-hog", {})]
    runs: Runs = {
        "small:cpu-share.cap50:cpu-hog": ("group", probe, [[4.0, 1.0]] * 4),
        "solo:cpu-share.cap50:0": ("solo", probe[:1], [[49.0]] * 4),
        "solo:cpu-share:0": ("solo", probe[:1], [[0.0]] * 4),
    }
    lab = _dataset(tmp_path / "a", runs)
    outcomes = lab / "outcomes.csv"
    outcomes.write_text(outcomes.read_text().replace(",throughput,", ",median_gap,"))
    filled = _filled("E1", "gap-size", lab)
    assert filled["measured_value"] == 49
    assert filled["measured_verdict"] == "agrees"


def test_throughput_beside_a_reader_and_writer_is_of_reads_and_writes(tmp_path: Path) -> None:
    def beside(workload: str, reached: float) -> tuple[str, Members, list[list[float]]]:
        return "group", [(workload, {}), ("disk-pairs-1", {})], [[reached, 1.0]] * 4

    reads: Runs = {"different:r": beside("disk-stream", 90.0)}
    assert _measured("L6", "one-pair-throughput", _dataset(tmp_path / "a", reads)) is None
    both = _dataset(tmp_path / "b", {**reads, "different:w": beside("disk-stream-write", 10.0)})
    loss = _measured("L6", "one-pair-throughput", both)
    assert loss == (pytest.approx(50),) * 4


def test_what_driver_domain_and_first_guest_get_more_is_summed(tmp_path: Path) -> None:
    pairs = {"same:a": ("1k", "1k"), "same:b": ("1k", "100k")}
    runs: Runs = {name: ("group", _web(*sizes), [[50.0, 50.0]]) for name, sizes in pairs.items()}
    seen = {"same:a": (30, 33, 33), "same:b": (38, 40, 10)}  # of the driver domain and both guests
    metrics = "".join(
        f"{name},1,,driver_domain,cpu,{driver}\n{name},1,web-1k.1,instance,cpu,{first}\n"
        f"{name},1,web-{pairs[name][1]}.2,instance,cpu,{second}\n"
        for name, (driver, first, second) in seen.items()
    )
    extra = _measured("N4", "extra-cpu", _dataset(tmp_path / "a", runs, metrics))
    assert extra == (pytest.approx(15),)


def test_sweeps_are_read_load_by_load_within_a_round(tmp_path: Path) -> None:
    def at(load: float, sent: list[float]) -> tuple[str, Members, list[list[float]]]:
        members = [(name, {**with_, "load": str(load)}) for name, with_ in _web("1k", "100k")]
        return "group", members, [[1.0, value] for value in sent]

    runs: Runs = {
        "same:x.3": at(0.3, [30.0, 30.0]), "same:x.5": at(0.5, [31.0, 50.0]), "same:x.7": at(0.7, [30.3, 70.0]),
        "same:x": at(1.0, [99.0, 99.0]),
    }  # fmt: skip
    moved = _measured("N7", "100k-range-ii-flat", _dataset(tmp_path / "a", runs))
    assert moved == (pytest.approx(0.01), pytest.approx(4 / 3))
    without = {name: run for name, run in runs.items() if name != "same:x.5"}
    assert _measured("N7", "100k-range-ii-flat", _dataset(tmp_path / "b", without)) is None


def test_the_example_of_three_megabits_is_told_alone_and_together(tmp_path: Path) -> None:
    payload = 1448 / 1514
    members: Members = [("bulk", {"solo": str(3 * payload)}), ("bulk", {"solo": str(3 * payload)})]
    name = "same:bulk.shared1:bulk.shared2"
    lab = _dataset(tmp_path / "lab-htb-3mbit", {name: ("group", members, [[payload, 2 * payload]] * 4)})
    for statement, rate in (("first-of-two", 1), ("second-of-two", 2), ("other-silent", 3)):
        filled = _filled("L7", f"example-{statement}", lab)
        assert filled["measured_value"] == pytest.approx(rate)
        assert filled["measured_verdict"] == "agrees"
    assert _measured("L7", "example-capped-slack", lab) is None


def test_an_order_is_taken_from_the_one_dataset_that_has_most_of_it(tmp_path: Path) -> None:
    some: Runs = {"same:x": ("group", _web("1k", "1k"), [[99.0, 99.0]] * 2)}
    every: Runs = {
        f"same:{pair}": ("group", _web(*pair.split("+")), [[90.0 - n, 90.0]] * 4)
        for n, pair in enumerate(PAIRS_IN_ORDER)
    }
    filled = _filled("N3", "pair-order", _dataset(tmp_path / "a", some), _dataset(tmp_path / "b", every))
    assert filled["source"] == "b"
    assert filled["measured_verdict"] == "agrees"


def test_kinds_of_virtualisation_are_compared_across_their_campaigns(tmp_path: Path) -> None:
    def campaign(kind: str, latency: float) -> Path:
        path = _dataset(tmp_path / f"lab-messages-{kind}", {"solo:messages:0:1": ("solo", [("messages", {})], [[1.0]])})
        outcomes = path / "outcomes.csv"
        outcomes.write_text(outcomes.read_text().replace("throughput,1.0", f"latency_64b,{latency}"))
        return path

    factor = _measured("C2", "kvm-fine", campaign("native", 20.0), campaign("qemu", 50.0))
    assert factor == (2.5,)


def test_one_round_is_shown_and_undetermined(tmp_path: Path) -> None:
    runs: Runs = {"same:x": ("group", _web("1k", "1k"), [[42.0, 42.0]])}
    filled = _filled("N5", "1k-loss", _dataset(tmp_path / "a", runs))
    assert filled["measured"] == "58 % (once)"
    assert filled["measured_verdict"] == "undetermined"
