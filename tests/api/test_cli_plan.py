"""`plan` on files: steps by stage, the way back, commands, JSON, and one sentence for every mistake."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import Result

from advisor import offline
from advisor.domain import Instance, Plan, PlanRequest, PlanStep
from advisor.offline import load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from tests.api import cli_runs

CLOUD = str(Path(__file__).parent / "cloud.yaml")
PRESSED = """
hosts: [{id: h1, kind: kvm, pcpus: 2, memory_mb: 8192}, {id: h2, kind: kvm, pcpus: 2, memory_mb: 8192}]
workloads: [{name: batch, metrics: {cpu: 100}, origin: measured}]
instances:
  - {id: a, host: h1, memory_mb: 1024, workload: batch, min_throughput_ratio: 0.9}
  - {id: b, host: h1, memory_mb: 1024, workload: batch}
  - {id: c, host: h1, memory_mb: 1024, workload: batch}
"""


@pytest.fixture(autouse=True)
def _files(_empty_folder: None) -> None:
    Path("pressed.yaml").write_text(PRESSED, encoding="utf-8")
    Path("add.yaml").write_text("[{id: n1, vcpus: 2, workload: web-1k}, {id: n2, vcpus: 64}]", encoding="utf-8")
    Path("mix.yaml").write_text("[{id: n, vcpus: 1, memory_mb: 5000, workload: batch}]", encoding="utf-8")
    Path("if.yaml").write_text("{remove: [h2], pinning: unpinned}", encoding="utf-8")


def run(*arguments: str) -> Result:
    return cli_runs.run("plan", *arguments)


@pytest.mark.usefixtures("undrawn")
def test_instances_are_placed_and_a_report_is_written() -> None:
    result = run(CLOUD, "--add", "add.yaml", "--report", "out.html")
    assert result.exit_code == 3, "one of the two finds no host"
    assert "1 of 2 instances can be placed." in result.stdout
    assert "Report written to out.html." in result.stdout
    assert "needs 64 vCPUs" in result.stdout
    assert Path("out.html").read_text(encoding="utf-8").startswith("<!")
    assert "searching: " in result.stderr


def test_who_goes_round_counts_once() -> None:
    one = Instance("a", host="h1")
    steps = tuple(PlanStep("a", host, action="move", source="h1") for host in ("h3", "h2"))
    answer = Plan(
        "p", datetime(2026, 3, 1, tzinfo=UTC), "analytic", "none", steps, {}, {}, PlanRequest(instances=(one,))
    )
    assert offline.plan_document(answer).headline == "The instance can be placed."


def test_a_rebalance_shows_its_stages_its_commands_and_the_way_back() -> None:
    shown = run("pressed.yaml", "--kind", "rebalance", "--commands", "--undo").stdout
    lines = shown.splitlines()
    assert lines[0].split()[:5] == ["stage", "step", "instance", "from", "to"]
    assert lines[1].split()[:2] == ["1", "move"]
    assert "Steps: 1 in 1 stage." in lines
    clouds = [line.split() for line in lines if line.startswith(("before ", "after "))]
    sums = {cells[0]: cells[1:5] for cells in clouds[:2]}
    assert sums == {"before": ["2", "1", "3", "3"], "after": ["2", "2", "3", "0"]}  # hosts, in use, instances, below
    assert [cells[3:] for cells in clouds[2:]] == [["0", "0", "0", "3", "0"], ["0", "0", "0", "0", "3"]]  # by score
    moves = [line for line in lines if line.startswith("virsh migrate --live")]
    assert [line.rpartition(" ")[2] for line in moves] == ["qemu+ssh://h2/system", "qemu+ssh://h1/system"]
    assert "To undo:" in lines


def test_a_cloud_that_needs_nothing_says_so() -> None:
    Path("fine.yaml").write_text(PRESSED.replace("{id: b, host: h1", "{id: b, host: h2"), encoding="utf-8")
    result = run("fine.yaml", "--kind", "rebalance")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "Already fine: no change is needed."
    Path("dark.yaml").write_text(PRESSED.replace(", workload: batch}", "}"), encoding="utf-8")
    known = run("dark.yaml", "--kind", "right_size").stdout.splitlines()
    assert known[0] == "No other size is advised, as far as is known."


def test_a_plan_says_of_how_many_instances_only_the_size_is_known() -> None:
    assert "only their sizes" not in run("pressed.yaml", "--kind", "rebalance").stdout
    Path("dark.yaml").write_text(PRESSED.replace("workload: batch}", "workload: unheard-of}"), encoding="utf-8")
    assert "Known of 2 of 3 instances: only their sizes." in run("dark.yaml", "--kind", "rebalance").stdout
    wanted = PRESSED.replace("workload: batch}", "cpu_percent: 30}")
    Path("wanted.yaml").write_text(wanted, encoding="utf-8")
    assert "only their sizes" not in run("wanted.yaml", "--kind", "rebalance").stdout


def test_the_question_follows_from_the_options() -> None:
    kinds = {
        ("--empty", "h1"): "evacuate",
        ("--growth", "1", "--months", "2", "--add", "mix.yaml"): "capacity",
        ("--load-growth", "5", "--months", "1", "--add", "mix.yaml"): "capacity",
        ("--what-if", "if.yaml"): "what_if",
    }
    for options, kind in kinds.items():
        assert json.loads(run("pressed.yaml", *options, "--json").stdout)["kind"] == kind


def test_capacity_and_an_imagined_cloud_are_reported_side_by_side() -> None:
    shown = run("pressed.yaml", "--what-if", "if.yaml", "--then", "capacity", "--add", "mix.yaml").stdout
    assert "by sizes alone" in shown
    rows = [re.split(r"\s{2,}", line) for line in shown.splitlines() if line.startswith(("now", "imagined"))]
    assert [(row[0], row[1], row[7]) for row in rows] == [("now", "2", "1"), ("imagined", "1", "0")], shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--add: admit needs instances: instances to place"),
        (("--add", "nope.yaml"), "there is no file nope.yaml"),
        (("--empty", "h9"), "there is no host h9"),
        (("--empty", " , "), "--empty names no host; write --empty a,b"),
        (("--kind", "rebalance", "--movable", "x"), "there is no instance on a host x"),
        (("--kind", "rebalance", "--growth", "1"), "growth is only allowed for capacity, not for rebalance"),
        (("--kind", "capacity", "--add", "mix.yaml", "--months", "3"), "--months: months is about growth"),
        (("--empty", "h1,h1"), "host h1 stands twice"),
        (("--what-if", "broken.yaml"), "broken.yaml, line 1, field pinning"),
        (("--what-if", "none.yaml"), "what_if needs at least one change"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    Path("broken.yaml").write_text("{pinning: sometimes}", encoding="utf-8")
    Path("none.yaml").write_text("{}", encoding="utf-8")
    result = run("pressed.yaml", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_stored_plan_is_shown_with_its_age(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/plans.sqlite3"
    with Advisor(Settings(database=database, state_dir=tmp_path)) as advisor:
        advisor.inventory.put(load_inventory(Path("pressed.yaml")), mode="replace", generation=None)
        fresh = advisor.plans.make(PlanRequest(kind="rebalance", commands=True))

        def stored(*arguments: str) -> str:
            return cli_runs.run("plans", *arguments, "--database", database).stdout

        assert "The inventory was not written since (generation 1)." in stored("show", fresh.id)
        advisor.inventory.put_instance(Instance("late", host="h2"))
        shown = stored("show", fresh.id, "--undo")
        assert "Stale: it was made for generation 1 of the inventory, which is at 2 now; changed since: " in shown
        assert "instance late. Ask again." in shown
        assert "To undo:" in shown
        assert json.loads(stored("show", fresh.id, "--json"))["stale"] is True
        assert [row.split()[:2] + row.split()[-1:] for row in stored("list").splitlines()[1:]] == [
            [fresh.id, "rebalance", "yes"]
        ]
        assert json.loads(stored("list", "--kind", "admit", "--json")) == []
    assert cli_runs.run("plans", "show", "never", "--database", database).exit_code == 1


@pytest.mark.parametrize("known", [0, 2, 3])
def test_that_nothing_is_to_be_done_says_whose_demand_is_known(known: int) -> None:
    demands = [", demand: {cpu: 0.2}" if number < known else "" for number in range(3)]
    there = [f"- {{id: v{at}, host: h1, vcpus: 2, memory_mb: 512{demand}}}" for at, demand in enumerate(demands)]
    cloud = ["hosts: [{id: h1, kind: kvm, pcpus: 32, memory_mb: 8192}]", "instances:", *there]
    Path("calm.yaml").write_text("\n".join(cloud), encoding="utf-8")
    shown = run("calm.yaml", "--kind", "rebalance").stdout
    assert shown.splitlines()[0] == "Already fine: no change is needed."
    assert (f"Demand is known for {known} of 3 instances" in shown) == (known < 3)
    assert "only their sizes" not in shown
    notes = json.loads(run("calm.yaml", "--kind", "rebalance", "--json").stdout)["notes"]
    assert any(note.startswith(f"Demand is known for {known} of 3") for note in notes) == (known < 3)
    report = cli_runs.run("report", "calm.yaml", "--out", "reports", "--json")
    data = json.loads((Path(json.loads(report.stdout)["report"]) / "report.json").read_text(encoding="utf-8"))
    assert (f"Demand is known for {known} of 3 instances" in " ".join(data["sentences"])) == (known < 3)


PINNED = """
hosts: [{id: h1, kind: kvm, pcpus: 4, memory_mb: 8192}, {id: h2, kind: kvm, pcpus: 4, memory_mb: 8192}]
instances:
  - {id: a, host: h1, vcpus: 1, memory_mb: 1024, demand: {cpu: {mean: 0.6}}, pinning: "0:0"}
  - {id: b, host: h1, vcpus: 1, memory_mb: 1024, demand: {cpu: {mean: 0.6}}, pinning: "0:0"}
"""


def test_tune_frees_what_is_pinned_badly_on_the_host_that_is_named() -> None:
    Path("pinned.yaml").write_text(PINNED, encoding="utf-8")
    result = cli_runs.run("tune", "pinned.yaml", "h1", "--commands")
    assert result.exit_code == 0, result.output
    assert "gives up its pins to CPU 0" in result.stdout
    assert "virsh vcpupin --domain a --vcpu 0 --live --cpulist r" in result.stdout.splitlines()
    of_all = json.loads(cli_runs.run("tune", "pinned.yaml", "--all", "--json").stdout)
    assert (of_all["kind"], [step["instance"] for step in of_all["steps"]]) == ("tune", ["a"])
    assert of_all["question"]["hosts"] is None
    assert cli_runs.run("tune", "pinned.yaml", "h2").stdout.splitlines()[0] == "Already fine: no change is needed."


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((), "name a host, or give --all"),
        (("h1", "--all"), "name a host, or give --all"),
        (("h9",), "HOST: there is no host h9"),
        (("h1,h9",), "HOST: there is no host h9"),
    ],
)
def test_tune_needs_a_host_of_the_cloud_or_all_and_the_error_names_what_was_typed(
    asked: tuple[str, ...], why: str
) -> None:
    Path("pinned.yaml").write_text(PINNED, encoding="utf-8")
    refused = cli_runs.run("tune", "pinned.yaml", *asked)
    assert (refused.exit_code, why in refused.output + refused.stderr) == (2, True)
