"""`where` and `predict` on files: tables, JSON, exit codes and one sentence for every mistake."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from advisor.domain import Band, Effect, PlacementRequest, Recommendation, Rejection
from advisor.offline import answered_by
from tests.api.cli_runs import run
from tests.api.sample_answer import HOSTILE, answer

CLOUD = str(Path(__file__).parent / "cloud.yaml")
SHOP = "{id: shop-7, vcpus: 2, memory_mb: 4096, workload: web-1k, min_throughput_ratio: 0.8}"
SCENE = """
host: {kind: xen, pcpus: 2, memory_mb: 4096, driver_cpus: "0"}
instances: [{id: one, vcpus: 1, workload: web}, {id: two, vcpus: 1, workload: hog}]
workloads: [{name: web, metrics: {cpu: 60, driver_domain.cpu: 30}}, {name: hog, metrics: {cpu: 100}}]
"""


@pytest.fixture(autouse=True)
def _files(_empty_folder: None) -> None:
    Path("shop.yaml").write_text(SHOP, encoding="utf-8")
    Path("scene.yaml").write_text(SCENE, encoding="utf-8")


def reported(result: Result) -> str:
    """The one sentence on standard error."""
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_the_ladder_is_reported_with_what_is_enough_and_whose_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.offline.where", lambda cloud, request, **_: answer(request))
    shown = run("where", CLOUD, "--instance", "shop.yaml", "--explain").stdout
    reported = shown[shown.index("Settings tried on h1") :].splitlines()
    assert reported[0] == "Settings tried on h1: The placement alone breaks a limit there; in order of cost."
    assert [line.split()[:2] for line in reported[1:4]] == [["Step", "Enough"], ["weight", "no"], ["cap", "yes"]]
    assert "Cap batch-1 at 60 % of a CPU: shop-7 0.71 -> 0.95." in reported[3]
    assert reported[4] == "  batch-1 gets: cap 60 % of a CPU"
    table = shown[shown.index("rank  host") :].splitlines()
    assert "; batch-1 gets: cap 60 % of a CPU" in table[1]  # the table does not hide it
    assert "Settings tried on h8: The placement alone breaks a limit there; in order of cost; none is enough." in shown
    assert shown.count("breaks a limit") == 2


def test_the_headline_names_the_victim_of_the_advice_and_what_its_commands_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = ("batch-1 would run at 10 % of its uncontended speed, and no limit protects it", "needs label mac")

    def starving(_: object, request: Any, **__: object) -> Any:
        reported = answer(request)
        best = replace(
            reported.candidates[0], mitigation=(replace(reported.candidates[0].mitigation[-1], notes=notes),)
        )
        return replace(reported, candidates=(best, *reported.candidates[1:]))

    monkeypatch.setattr("advisor.offline.where", starving)
    lines = run("where", CLOUD, "--instance", "shop.yaml").stdout.splitlines()
    assert lines[:3] == ["shop-7 should go to h1.", f"Note: {notes[0]}.", f"Note: {notes[1]}."]
    monkeypatch.setattr("advisor.offline.where", lambda _, request, **__: answer(request))
    assert "Note: " not in run("where", CLOUD, "--instance", "shop.yaml").stdout


def test_a_limit_that_the_placement_alone_breaks_is_mended_on_the_way() -> None:
    cloud = Path(CLOUD).read_text(encoding="utf-8")
    wide = "  - {name: wide, metrics: {cpu: 200, block: 0}}\ninstances:"
    Path("cloud.yaml").write_text(cloud.replace("instances:", wide), encoding="utf-8")
    Path("busy.yaml").write_text(
        "{id: n, vcpus: 2, workload: wide, min_throughput_ratio: 0.65, pinning: '0:2|1:3'}", encoding="utf-8"
    )
    result = run("where", "cloud.yaml", "--instance", "busy.yaml", "--hosts", "h2", "--json", "--explain")
    assert result.exit_code == 0
    (candidate,) = json.loads(result.stdout)["candidates"]
    assert candidate["new_vm"]["throughput_ratio"]["expected"] >= 0.65
    assert [(one["action"], one["satisfies"]) for one in candidate["mitigation"]] == [("weight", False), ("cap", True)]
    assert candidate["changes"]["batch-1"]["isolation"]["cap_percent"] == 70.0
    assert candidate["reasons"][0]["text"] == (
        "n runs at 65 % of its uncontended speed, limited by the CPU: batch-1 asks for 0.70 CPUs of it "
        "under the settings that it gets here, and both take turns on the same CPUs (L8). "
        "n is contended 100 % of the time."
    )
    last = candidate["mitigation"][-1]["effects"]
    assert [one["instance"] for one in last] == ["n", "batch-1"]
    assert last[0]["throughput_ratio"] == candidate["new_vm"]["throughput_ratio"]
    assert last[1]["throughput_ratio"] == candidate["neighbours"][0]["throughput_ratio"]


def test_where_prints_ranked_hosts_then_rejected_ones_then_who_answered() -> None:
    result = run("where", CLOUD, "--instance", "shop.yaml", "--hosts", "h3,h4,h6")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] in {"shop-7 should go to h3.", "shop-7 should go to h4."}
    table = next(at for at, line in enumerate(lines) if line.startswith("rank  "))
    ranked = [line.split()[:2] for line in lines[table + 1 : table + 3]]
    assert [rank for rank, _ in ranked] == ["1", "2"]
    assert {host for _, host in ranked} == {"h3", "h4"}
    assert re.search(r"\d\.\d\d \(\d\.\d\d-\d\.\d\d\) +mystery \d\.\d\d +", "\n".join(lines))
    assert any(line.split()[:2] == ["h6", "host.disabled"] for line in lines)
    assert lines[-1] == ("Answered by the analytic model; no learned model was used.")
    assert "Why" not in result.stdout
    assert "Commands" not in result.stdout


def test_where_gives_reasons_and_commands_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.ask.offline.where", lambda _, request, **__: answer(request))
    result = run("where", CLOUD, "--instance", "shop.yaml", "--explain", "--commands")
    assert "Why h1:\n  The driver domain costs the most affected up to 7%" in result.stdout
    assert "  xl vcpu-pin shop-7 0 2\n    undo: xl vcpu-pin shop-7 0 all\n" in result.stdout
    assert "Commands for h2, each with its undo; nothing was run:\n  none needed\n" in result.stdout
    assert (
        "pin 0:2|1:3, cap 150 % of a CPU, weight 512 (2 × default), network shared 200 up to 1000 Mbit/s, disk 40 MB/s"
        in result.stdout
    )
    assert "Answered by model m-1, trained on measured data." in result.stdout


def test_who_answers_says_for_how_many_predictions_the_model_did_not() -> None:
    inside = Effect("a", Band(1.0, 1.0, 1.0), Band(1.0, 1.0, 1.0))
    outside = replace(inside, outside_training=True)
    assert answered_by("m-1", "measured", effects=[inside]) == "Answered by model m-1, trained on measured data."
    said = answered_by("m-1", "measured", effects=[inside, outside])
    assert said.endswith("trained on measured data.")
    assert "outside" not in answered_by("analytic", "analytic", effects=[outside])


def test_where_as_json_is_the_answer_of_the_api() -> None:
    asked = ("where", CLOUD, "--instance", "shop.yaml", "--hosts", "h3,h4", "--json")
    found = json.loads(run(*asked, "--commands").stdout)
    assert {one["host"] for one in found["candidates"]} == {"h3", "h4"}
    assert (found["model_version"], found["model_origin"]) == ("analytic", "analytic")
    assert found["dry_run"] is True
    assert all("commands" in one for one in found["candidates"])
    assert not any(one["commands"] for one in json.loads(run(*asked).stdout)["candidates"])


def test_an_instance_of_the_inventory_is_taken_off_its_host_first() -> None:
    result = run("where", CLOUD, "--instance", "batch-1", "--json", "--hosts", "h2")
    found = json.loads(result.stdout)
    assert found["candidates"][0]["neighbours"] == []


def standing(request: PlacementRequest, on: str, *tied: str) -> Recommendation:
    """The sample answer for an instance that is on that host, which is tied with these candidates as it stands."""
    reported = answer(request)
    there = next(one for one in reported.candidates if one.host == on)
    slow = replace(there.new_vm, throughput_ratio=Band(0.61, 0.5, 0.7))
    return replace(reported, present=replace(there, new_vm=slow, tied_with=tied))


def headline(monkeypatch: pytest.MonkeyPatch, name: str, *standing_on: str) -> str:
    monkeypatch.setattr("api.cli.ask.offline.where", lambda _, request, **__: standing(request, *standing_on))
    return run("where", CLOUD, "--instance", name).stdout.splitlines()[0]


def test_the_headline_says_what_a_resident_has_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    said = headline(monkeypatch, "shop-3", "h1", "h2", "h1")
    assert said == "shop-3 should stay on h1 as it is: nothing is better beyond the uncertainty."
    assert headline(monkeypatch, "shop-3", "h1").startswith("shop-3 should stay on h1 under other settings: 61 % → ")
    # h2 is tied with h1, so it stays there under the settings that suit it best.
    assert headline(monkeypatch, "batch-1", "h2").startswith("batch-1 should stay on h2 under other settings: 61 % → ")
    monkeypatch.setattr(
        "api.cli.ask.offline.where",
        lambda _, request, **__: replace(
            standing(request, "h2"), candidates=(replace(answer(request).candidates[0], tied_with=()),)
        ),
    )
    moved = run("where", CLOUD, "--instance", "batch-1").stdout
    assert moved.startswith("batch-1 should move from h2 to h1: 61 % → 95 % of its uncontended speed.")


def test_a_new_instance_may_be_like_another_one() -> None:
    shown = json.loads(run("where", CLOUD, "--like", "files-1", "--json").stdout)
    assert (shown["evidence"]["level"], shown["evidence"]["held"]) == ("profile", None)
    assert "never measured" in shown["evidence"]["advice"], "the only resident of the best host was not"
    assert "new-instance should go to h" in run("where", CLOUD, "--like", "files-1").stdout
    Path("large.yaml").write_text("{id: large, vcpus: 4, memory_mb: 1}", encoding="utf-8")
    assert "large should go to h" in run("where", CLOUD, "--instance", "large.yaml", "--like", "files-1").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the instance with --instance, or one that it is like with --like"),
        (("--like", "ghost"), "there is no instance ghost to be like"),
        (
            ("--like", "files-1", "--instance", "shop.yaml"),
            "the file says what shop-7 runs or needs; leave out --like",
        ),
    ],
)
def test_the_similar_instance_must_exist_and_must_not_contradict_the_question(
    arguments: tuple[str, ...], words: str
) -> None:
    assert reported(run("where", CLOUD, *arguments)) == f"cotenant: {words}"


def test_what_is_known_of_residents_and_what_would_tell_more_is_said() -> None:
    shown = run("where", CLOUD, "--instance", "shop.yaml", "--hosts", "h4").stdout
    assert "The only resident of h4 is known by its size only." in shown
    assert (
        "run the agent on h4 (cotenant-profiler run --host h4 --push URL): its only resident was never measured."
        in shown
    )


def test_only_named_hosts_answer() -> None:
    found = json.loads(run("where", CLOUD, "--instance", "shop.yaml", "--hosts", "h3, h5,nope", "--json").stdout)
    assert [one["host"] for one in found["candidates"]] == ["h3"]
    assert [(one["host"], one["code"]) for one in found["rejected"]] == [
        ("h5", "capacity.memory"),
        ("nope", "host.unknown"),
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_no_host_is_an_answer_that_scripts_can_tell_from_a_failure(as_json: bool) -> None:
    result = run("where", CLOUD, "--instance", "shop.yaml", "--hosts", "h5", *(["--json"] if as_json else []))
    assert result.exit_code == 3
    assert result.stdout.startswith("{" if as_json else "No host can take shop-7.")


def test_a_cloud_without_hosts_says_that_it_has_none() -> None:
    Path("none.yaml").write_text("hosts: []", encoding="utf-8")
    result = run("where", "none.yaml", "--instance", "shop.yaml")
    assert result.exit_code == 3
    assert result.stdout.startswith("No host can take shop-7: the inventory has none.")


def test_hundreds_of_rejected_hosts_are_counted_unless_all_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = [Rejection(f"h{number}", "capacity.memory", f"{number} MB free") for number in range(300)]
    rejected = (Rejection("a", "host.disabled", "the host is disabled"), *memory)
    monkeypatch.setattr("api.cli.ask.offline.where", lambda _, request, **__: answer(request, rejected=rejected))
    short = run("where", CLOUD, "--instance", "shop.yaml").stdout
    assert re.search(r"300  capacity\.memory  h0: 0 MB free\n +1  host\.disabled    a: the host is disabled", short)
    assert "h299" not in short
    assert "h299" in run("where", CLOUD, "--instance", "shop.yaml", "--explain").stdout


def test_a_degraded_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.ask.offline.where", lambda _, request, **__: answer(request, degraded=True))
    assert "Degraded: the learned model failed." in run("where", CLOUD, "--instance", "shop.yaml").stdout


def test_no_name_can_speak_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(_: Any, request: Any, **__: Any) -> Any:
        return answer(request, hostile="\x1b]0;owned\x07\x1b[2J\u202e" + HOSTILE)

    monkeypatch.setattr("api.cli.ask.offline.where", place)
    shown = run("where", CLOUD, "--instance", "shop.yaml", "--explain", "--commands").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("where", "nope.yaml", "--instance", "x"), "there is no file nope.yaml"),
        (("where", CLOUD, "--instance", "nope"), "no such file, and no instance of that name"),
        (("where", CLOUD, "--instance", "nope.yaml"), "there is no file nope.yaml"),
        (("where", CLOUD, "--instance", "scene.yaml"), "scene.yaml"),
        (("where", CLOUD, "--instance", "two.yaml"), "holds 2 instances, one is needed"),
        (("where", CLOUD, "--instance", "shop.yaml", "--hosts", " , "), "--hosts names no host"),
        (("where", "broken.yaml", "--instance", "x"), "broken.yaml, line 1, field hosts[0].pcpus"),
        (("predict", CLOUD), "field host is missing"),
        (("predict", "nope.yaml"), "there is no file nope.yaml"),
        (("where", ".", "--instance", "x"), "is a directory"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    Path("two.yaml").write_text("[{id: a}, {id: b}]", encoding="utf-8")
    Path("broken.yaml").write_text("hosts: [{id: h, kind: kvm, pcpus: x, memory_mb: 1}]", encoding="utf-8")
    if arguments[:2] == ("predict", CLOUD):
        Path("no-host.yaml").write_text("instances: [{id: a}]", encoding="utf-8")
        arguments = ("predict", "no-host.yaml")
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in reported(result)


@pytest.mark.parametrize(
    "arguments",
    [
        ("where", CLOUD, "--instance", "x", "--model", "nope"),
        ("nope",),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_a_broken_model_is_exit_code_1() -> None:
    Path("m").mkdir()
    result = run("where", CLOUD, "--instance", "shop.yaml", "--model", "m")
    assert result.exit_code == 1
    assert "model m cannot be used" in reported(result)


@pytest.mark.parametrize("name", ["COTENANT_FRESH_S", "COTENANT_MAX_BATCH"])
def test_a_wrong_setting_is_named_by_its_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    result = run("where", CLOUD, "--instance", "shop.yaml")
    assert result.exit_code == 2
    assert name in reported(result)


def test_predict_joins_instances_with_the_same_figures(tmp_path: Path) -> None:
    scene = "host: {id: h, kind: kvm, pcpus: 24, memory_mb: 262144}\ninstances:\n"
    scene += "".join(f"- {{id: web-{number:03}, vcpus: 1, memory_mb: 512}}\n" for number in range(150))
    path = tmp_path / "alike.yaml"
    path.write_text(scene + "- {id: db, vcpus: 16, memory_mb: 4096, demand: {cpu: 12}}\n", encoding="utf-8")
    result = run("predict", str(path))
    rows = [line for line in result.stdout.splitlines() if line.startswith(("web-", "db"))]
    assert len(rows) == 2
    assert rows[0].startswith("web-000 and 149 alike ")
    assert len(json.loads(run("predict", str(path), "--json").stdout)["effects"]) == 151


def test_predict_shows_every_instance_of_the_scene() -> None:
    result = run("predict", "scene.yaml")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["one", "two"]
    assert "Combined score" in result.stdout
