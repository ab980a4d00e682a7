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


def test_the_example_of_three_megabits_is_reported_alone_and_together(tmp_path: Path) -> None:
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


def _on_xen(one: str, other: str) -> Members:
    """Two web servers on the lab's Xen."""
    return [(f"web-{size}", {"platform": "xen-emulated"}) for size in (one, other)]


def test_configurations_of_xen_are_ordered_by_the_rate_of_both_servers(tmp_path: Path) -> None:
    rates = {"1-1-1": 90.0, "1-2-2": 70.0, "1-3-3": 60.0, "2-2-2": 65.0, "2-1-1": 68.0, "3-1-1": 40.0}
    runs: Runs = {
        f"{form}:x": ("group", _on_xen("1k", "1k"), [[rate - 1, rate + 1]] * 4) for form, rate in rates.items()
    }
    lab = _dataset(tmp_path / "a", runs)
    for order_of in ("1k-best-and-worst", "guest-cpus-order-dom0-1", "guest-cpus-order-dom0-2"):
        assert _filled("N11", order_of, lab)["measured_verdict"] == "agrees", order_of
    assert _measured("N11", "1k-1k-1-1-1", lab) == (90.0,) * 4
    assert _measured("N11", "1k-1k-loss-3-1-1", lab) == (pytest.approx(100 * (1 - 40 / 90)),) * 4
    elsewhere = _dataset(tmp_path / "b", {"1-1-1:x": ("group", _web("1k", "1k"), [[90.0, 90.0]] * 4)})
    assert _measured("N11", "1k-1k-1-1-1", elsewhere) is None  # a form of the same name, of containers


def test_cores_that_all_domains_share_are_compared_by_what_was_used_of_them(tmp_path: Path) -> None:
    runs: Runs = {f"shared-{cores}:x": ("group", _on_xen("1k", "1k"), [[40.0, 50.0]] * 2) for cores in (1, 3, 4)}
    used = {1: (40, 28, 32), 3: (60, 50, 52), 4: (80, 60, 60)}  # of Dom0 and both guests, in percent of one CPU
    metrics = "".join(
        f"shared-{cores}:x,{n},,driver_domain,cpu,{dom0}\nshared-{cores}:x,{n},web-1k.1,instance,cpu,{one}\n"
        f"shared-{cores}:x,{n},web-1k.2,instance,cpu,{other}\n"
        for n in (1, 2)
        for cores, (dom0, one, other) in used.items()
    )
    lab = _dataset(
        tmp_path / "a", runs, metrics.replace("shared-1:x,2,,driver_domain,cpu,40", "shared-1:x,2,,host,x,1")
    )
    assert _measured("N9", "1k-1k-load-3-cores", lab) == (45.0, 45.0)
    assert _measured("N9", "1k-pairs-host-cpu-1-core", lab) == (100.0,)  # of the round that has all of it
    assert _measured("N9", "1k-1k-host-cpu-3-4-cores", lab) == (pytest.approx(162 / 3),) * 2
    assert _measured("N10", "dom0-cpu-with-cores", lab) == (pytest.approx(80 / 4 / 40 - 1),)
    assert _measured("N10", "1k-guest-cpu-with-cores", lab) == (1.0, 1.0)


def test_a_trace_that_saw_no_domain_run_is_no_cpu_of_zero(tmp_path: Path) -> None:
    metrics = "".join(
        f"shared-1:x,1,{instance},{scope},cpu,0\n"
        for instance, scope in (("", "driver_domain"), ("web-1k.1", "instance"), ("web-1k.2", "instance"))
    )
    lab = _dataset(tmp_path / "a", {"shared-1:x": ("group", _on_xen("1k", "1k"), [[40.0, 50.0]])}, metrics)
    assert _measured("N9", "1k-pairs-host-cpu-1-core", lab) is None


def test_a_grant_table_is_full_only_where_every_server_of_1_kb_holds_all_of_its_entries(tmp_path: Path) -> None:
    runs: Runs = {
        "shared-3:x": ("group", _on_xen("1k", "1k"), [[40.0, 50.0]] * 4),
        "1-1-1:y": ("group", _on_xen("1k", "1m"), [[40.0, 50.0]] * 4),
    }
    held = {"shared-3:x": {"web-1k.1": 128, "web-1k.2": 128}, "1-1-1:y": {"web-1k.1": 128, "web-1m.2": 2}}
    rows = [
        f"{run},{n},{instance},instance,{metric},{value}\n"
        for run, instances in held.items()
        for n in (1, 2, 3, 4)
        for instance, entries in instances.items()
        for metric, value in (
            ("grant_entries", entries), ("grant_entries_most", 128), ("slab_objects", 148),
            ("slab_objects_at_rest", 21),
        )
    ]  # fmt: skip
    full = _dataset(tmp_path / "a", runs, "".join(rows))
    assert _filled("N13", "every-1k-case", full)["measured_verdict"] == "agrees"
    assert _measured("N13", "grant-entries-pinned", full) == (128.0,) * 4
    assert _measured("N13", "slab-gain-as-printed", full) == (pytest.approx(148 / 21),) * 4
    one_lower = "".join(rows).replace(
        "1-1-1:y,2,web-1k.1,instance,grant_entries,128", "1-1-1:y,2,web-1k.1,instance,grant_entries,9"
    )
    some = _dataset(tmp_path / "b", runs, one_lower)
    assert _filled("N13", "every-1k-case", some)["measured_verdict"] == "undetermined"
    assert _filled("N15", "grant-table", some)["measured_verdict"] == "agrees"


def test_hops_are_reported_beside_a_neighbour_that_sends_through_the_same_routers(tmp_path: Path) -> None:
    def with_hops(path: Path, neighbour: str) -> Path:
        lab = _dataset(path, {"different:h": ("group", [("hops", {}), (neighbour, {})], [[1.0, 1.0]] * 4)})
        outcomes = lab / "outcomes.csv"
        further = "".join(
            f"different:h,{n},hops.1,hops,{name},{value}\n"
            for n in (1, 2, 3, 4)
            for name, value in (("hop1_p95", 0.103), ("hop1_median", 0.1), ("sum_median", 0.4), ("sum_max", 4.4))
        )
        outcomes.write_text(outcomes.read_text() + further)
        return lab

    lab = with_hops(tmp_path / "a", "bulk")
    assert _filled("L3", "first-hop", lab)["measured_verdict"] == "agrees"
    assert _filled("L3", "three-hops-spikes", lab)["measured_value"] == pytest.approx(11)
    assert _filled("L3", "three-hops", lab)["measured_verdict"] is None  # ms of another network
    assert _measured("L3", "first-hop", with_hops(tmp_path / "b", "cpu")) is None


def test_what_binds_a_server_alone_is_what_it_uses_more_of(tmp_path: Path) -> None:
    sizes = {"1k": (4.0, 440.0), "4k": (6.0, 700.0), "10k": (50.0, 940.0), "30k": (70.0, 960.0), "50k": (75.0, 960.0),
             "70k": (80.0, 960.0), "100k": (86.0, 960.0)}  # percent blocked, Mbit/s of a line of 1000  # fmt: skip
    runs: Runs = {f"solo:web-{size}:0:1": ("solo", [(f"web-{size}", {})], [[1.0]]) for size in sizes}
    metrics = "".join(
        f"solo:web-{size}:0:1,1,web-{size}.1,instance,{metric},{value}\n"
        for size, values in sizes.items()
        for metric, value in zip(("block", "net_mbit"), values, strict=True)
    )
    lab = _dataset(tmp_path / "a", runs, metrics)
    assert _measured("N1", "class-1k-4k", lab) == (pytest.approx(94 - 70),)
    assert _measured("N1", "class-10k-100k", lab) == (pytest.approx(50 - 94),)
    assert _measured("N1", "class-1k-100k-larger-hosts", lab) == (pytest.approx(14 - 96),)


def test_the_best_pair_is_set_against_the_next_one_of_its_round(tmp_path: Path) -> None:
    runs: Runs = {
        f"same:{pair}": ("group", _web(*pair.split("+")), [[95.0 - 5 * n, 90.0]] * 4)
        for n, pair in enumerate(PAIRS_IN_ORDER)
    }
    lab = _dataset(tmp_path / "a", runs)
    assert _measured("N3", "pair-best", lab) == (pytest.approx(185 / 180),) * 4
    assert _measured("N3", "pair-second", lab) == (pytest.approx(180 / 175),) * 4
    assert _measured("N3", "pair-worst", lab) == (pytest.approx(165 / 170),) * 4
