"""`sync`, `db`, `models` and `train`: what is kept, and how it is shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import ModelCard
from advisor.errors import BrokenArtifact
from advisor.lifecycle.registry import ModelRegistry
from advisor.lifecycle.training import TurnedOut
from advisor.service import Advisor
from advisor.settings import Settings
from tests.api.cli_runs import run

pytestmark = pytest.mark.usefixtures("_folder_with_tables")

CLOUD = str(Path(__file__).parent / "cloud.yaml")


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The datasets of each training, of which none takes place."""
    asked: list[Any] = []

    def train(datasets: list[Path], **_: object) -> Path:
        asked.append(datasets)
        return Path("m-1")

    monkeypatch.setattr("api.cli.learn.offline.train", train)
    return asked


def test_sync_loads_an_inventory_and_says_what_it_loaded() -> None:
    first, second = run("sync", CLOUD), run("sync", CLOUD, "--json")
    assert first.stdout == "Loaded 6 hosts, 6 instances, 3 workloads; the inventory is at generation 1.\n"
    assert json.loads(second.stdout) == {"generation": 2, "hosts": 6, "instances": 6, "workloads": 3}


def test_sync_says_which_pin_a_host_cannot_hold_and_takes_all_else() -> None:
    text = "hosts: [{id: h7, kind: kvm, pcpus: 2, memory_mb: 1024}]\ninstances:\n"
    text += "  - {id: a, host: h7, pinning: '0:9'}\n  - {id: b, host: h7, pinning: '0:1'}\n"
    Path("odd.yaml").write_text(text, encoding="utf-8")
    reported = json.loads(run("sync", "odd.yaml", "--json").stdout)
    assert (reported["instances"], len(reported["left_out"])) == (2, 1)
    assert "odd.yaml, line 3, field instances[0].pinning" in run("sync", "odd.yaml").stdout
    with Advisor(Settings()) as advisor:
        pins = {one.id: str(one.settings.pinning or "") for one in advisor.cloud.inventory().instances}
    assert pins == {"a": "", "b": "0:1"}


ODD = [
    ("hosts", "{id: h8, kind: kvm, pcpus: two, memory_mb: 1024}"),
    ("hosts", "{id: h8, kind: kvm, pcpus: 2, memory_mb: -1}"),
    ("hosts", "{id: h8, kind: kvm, memory_mb: 1024}"),
    ("hosts", "{id: h8, kind: kvm, pcpus: 99999999999999999999, memory_mb: 1024}"),
    ("hosts", "{id: h7, kind: kvm, pcpus: 3, memory_mb: 1024}"),
    ("hosts", "[1, 2]"),
    ("instances", "{id: a, host: h7, vcpus: [2]}"),
    ("instances", "{id: a, host: h7, load: 1.0e300}"),
    ("instances", "{host: h7, vcpus: 2}"),
    ("instances", "{id: b, host: h7, vcpus: 2}"),
    ("instances", "{id: a, host: nowhere}"),
    ("instances", "{id: a, host: h8}"),
    ("instances", "{id: база/1, host: h7}"),
    ("instances", "{id: a, host: h7, vcpu: 2}"),
    ("hosts", "{id: h8, kind: kvm, pcpus: 2, memory_mb: 1024, labels: {render: bogus}}"),
    ("workloads", "{name: a/b, metrics: {cpu: 1}}"),
    ("workloads", "{name: web, metrics: {cpu: lots}}"),
    ("datasets", "no-such-folder"),
]


@pytest.mark.parametrize(("noun", "odd"), ODD)
def test_a_merge_leaves_out_what_is_malformed_and_takes_the_rest(noun: str, odd: str) -> None:
    Path("before.yaml").write_text(
        "hosts: [{id: h8, kind: kvm, pcpus: 9, memory_mb: 1}]\ninstances: [{id: a, host: h8, vcpus: 7}]\n"
    )
    run("sync", "before.yaml")
    good = {
        "hosts": "{id: h7, kind: kvm, pcpus: 2, memory_mb: 1024}",
        "instances": "{id: b, host: h7}",
        "workloads": "{name: w, metrics: {cpu: 1}}",
    }
    items = {name: [good[name]] if name in good else [] for name in (*good, "datasets")}
    items[noun].append(odd)
    lists = (f"{name}:\n" + "".join(f"  - {one}\n" for one in ones) for name, ones in items.items() if ones)
    Path("odd.yaml").write_text("".join(lists), encoding="utf-8")
    assert run("sync", "odd.yaml").exit_code == 2  # to replace is all or nothing
    merged = run("sync", "odd.yaml", "--merge", "--json")
    reported = json.loads(merged.stdout)
    assert (merged.exit_code, reported["hosts"], reported["instances"], reported["workloads"]) == (1, 1, 1, 1)
    (sentence,) = reported["left_out"]
    assert sentence.startswith("odd.yaml, line ")
    assert f"{noun}[" in sentence
    with Advisor(Settings()) as advisor:
        stored = advisor.cloud.inventory()
    assert {host.id: host.pcpus for host in stored.hosts} == {"h7": 2, "h8": 9}
    assert {one.id: (one.host, one.vcpus) for one in stored.instances} == {"a": ("h8", 7), "b": ("h7", 1)}


def test_sync_drops_what_is_not_named_unless_it_merges() -> None:
    Path("one.yaml").write_text("hosts: [{id: h7, kind: kvm, pcpus: 2, memory_mb: 1024}]", encoding="utf-8")
    run("sync", CLOUD)
    run("sync", "one.yaml", "--merge")
    with Advisor(Settings()) as advisor:
        assert len(advisor.inventory.hosts().items) == 7
    run("sync", "one.yaml")
    with Advisor(Settings()) as advisor:
        assert [host.id for host in advisor.inventory.hosts().items] == ["h7"]


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://"])
def test_a_database_that_makes_no_sense_is_wrong_usage(url: str) -> None:
    assert run("db", "upgrade", "--database", url).exit_code == 2


def test_a_database_that_cannot_be_made_is_a_failure() -> None:
    Path("file").write_text("", encoding="utf-8")
    result = run("db", "upgrade", "--database", "sqlite:///file/db.sqlite3")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_upgrade_tells_the_revision_and_is_safe_to_repeat() -> None:
    first, second = run("db", "upgrade"), run("db", "upgrade", "--json")
    revision = json.loads(second.stdout)["revision"]
    assert first.stdout == f"The database is at revision {revision}.\n"


def test_the_prior_is_listed_shown_and_activated() -> None:
    assert run("models", "list").stdout.splitlines()[1].split() == ["analytic", "active", "built", "in", "analytic"]
    assert json.loads(run("models", "list", "--json").stdout)[0]["version"] == "analytic"
    assert "analytic model" in run("models", "show", "analytic").stdout
    assert json.loads(run("models", "show", "analytic", "--json").stdout)["status"] == "active"
    assert run("models", "activate", "analytic").stdout == "Model analytic is active now.\n"
    assert json.loads(run("models", "activate", "analytic", "--json").stdout)["version"] == "analytic"


@pytest.mark.parametrize("command", ["show", "activate"])
@pytest.mark.parametrize("version", ["nope", "..", "../x", "/etc"])
def test_a_model_that_is_not_there_is_a_failure(command: str, version: str) -> None:
    result = run("models", command, version)
    assert result.exit_code == 1
    assert result.stderr == f"cotenant: there is no model {version}\n"


def test_a_model_that_cannot_be_registered_after_its_training_is_kept_and_its_place_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def register(_: ModelRegistry, artifact: Path) -> ModelCard:
        raise BrokenArtifact(f"model {artifact.name} cannot be used: its first prediction failed")

    monkeypatch.setattr("api.cli.learn.offline.train", lambda *_, settings, **__: settings.model_dir / "m-1")
    monkeypatch.setattr(ModelRegistry, "register", register)
    for more in ([], ["--json"]):
        result = run("train", "--dataset", "a", *more)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "it is kept in var/models/m-1; cotenant models activate m-1 tries again" in result.stderr


def test_train_registers_a_candidate_that_can_be_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    verdict: dict[str, Any] = {"passed": True, "refusals": [], "reasons": ["It is fine."], "against": "m-0"}
    card = ModelCard("m-1", "candidate", datetime.now(UTC), "paper", {}, verdict)

    def train(datasets: Any, *, settings: Settings, progress: Any, **_: Any) -> Path:
        asked["datasets"] = list(datasets)
        progress("fitting", 0.25)
        return settings.model_dir / "m-1"

    monkeypatch.setattr("api.cli.learn.offline.train", train)
    monkeypatch.setattr(ModelRegistry, "register", lambda _, artifact: asked.update(registered=artifact) or card)
    result = run("train", "--dataset", "a", "--dataset", "b")
    assert asked == {"datasets": [Path("a"), Path("b")], "registered": Path("var/models/m-1")}
    assert result.stderr == "fitting: 20 %\n"
    assert "The gate passes it, compared with the analytic model and m-0:\n  It is fine.\n" in result.stdout
    assert result.stdout.endswith("Activate it with: cotenant models activate m-1\n")
    verdict["passed"] = False
    assert run("train", "--dataset", "a").stdout.endswith("cotenant models activate m-1 --force\n")
    quiet = json.loads(run("train", "--dataset", "a", "--no-register", "--json").stdout)
    assert quiet == {"version": "m-1", "artifact": "var/models/m-1", "registered": False, "verdict": None}


@pytest.mark.parametrize("passed", [True, False])
def test_train_from_telemetry_activates_what_the_gate_lets_pass(
    monkeypatch: pytest.MonkeyPatch, trainings: list[Any], passed: bool
) -> None:
    def window_dataset(_: Advisor, seconds: float) -> Path:
        trainings.append(seconds)
        return Path("windows")

    verdict: dict[str, Any] = {"passed": passed, "refusals": [], "reasons": ["As it is."], "against": None}
    card = ModelCard("m-1", "candidate", datetime.now(UTC), "measured", {}, verdict)
    monkeypatch.setattr(ModelRegistry, "register", lambda *_: card)
    monkeypatch.setattr(ModelRegistry, "activate", lambda _, version: trainings.append(version))
    monkeypatch.setattr(Advisor, "roll_back_if_worse", lambda _: TurnedOut("m-0", 0.09, 0.05, 200))
    monkeypatch.setattr(Advisor, "window_dataset", window_dataset)
    result = run("train", "--dataset", "a", "--from-telemetry", "14d", "--auto")
    assert trainings == [14 * 86_400, [Path("a"), Path("windows")], *(["m-1"] if passed else [])]
    assert result.stdout.startswith(
        "Model m-0 turned out worse than the analytic model: mean error of the share 0.090 against"
    )
    assert ("It is active now." in result.stdout) is passed


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--every", "1d"), "--every and --auto go with --from-telemetry"),
        (("--from-telemetry", "2 weeks"), "--from-telemetry '2 weeks' is no time of up to 30 days; write 12h or 14d"),
        (("--from-telemetry", "14d", "--auto", "--no-register"), "--auto activates, so it needs a model"),
        (("--from-telemetry", "14d"), "0 windows of that time are stored, with 0 shares; 200 are needed"),
    ],
)
def test_train_says_what_learning_from_telemetry_lacks(options: tuple[str, ...], why: str) -> None:
    result = run("train", "--dataset", "a", *options)
    assert result.exit_code == 2
    assert why in result.stderr


def test_train_from_telemetry_needs_no_other_dataset(monkeypatch: pytest.MonkeyPatch, trainings: list[Any]) -> None:
    """Whoever installed the program has windows, and no folder of datasets."""
    monkeypatch.setattr(Advisor, "window_dataset", lambda *_: Path("windows"))
    assert run("train", "--from-telemetry", "14d", "--no-register").exit_code == 0
    assert trainings == [[Path("windows")]]
    refused = run("train", "--no-register")
    assert refused.exit_code == 2
    assert "no --dataset was given, and there is none in datasets/" in refused.stderr


def test_train_does_not_begin_where_its_model_could_not_be_listed(trainings: list[Any]) -> None:
    refused = run("train", "--dataset", "a", "--database", "nonsense://x")
    assert (refused.exit_code, trainings) == (2, [])
    assert refused.stderr == "cotenant: database 'nonsense' is not supported; use sqlite or postgresql\n"
    assert run("train", "--dataset", "a", "--database", "nonsense://x", "--no-register").exit_code == 0


def test_train_takes_all_datasets_that_lie_there_but_those_that_are_not_for_learning(trainings: list[Any]) -> None:
    for name, more in (("b", ""), ("a", "learn: true\n"), ("findings", "learn: false\n"), ("not-one", None)):
        Path("datasets", name).mkdir(parents=True)
        if more is not None:
            Path("datasets", name, "dataset.yaml").write_text(f"name: {name}\norigin: measured\n{more}", "utf-8")
    assert run("train", "--no-register").exit_code == 0
    assert trainings == [[Path("datasets/a"), Path("datasets/b")]]
    assert run("train", "--no-register", "--dataset", "datasets/findings").exit_code == 0
    assert trainings[1] == [Path("datasets/findings")]
    Path("datasets/b/dataset.yaml").write_text("origin: measured\n", "utf-8")
    refused = run("train", "--no-register")
    assert (refused.exit_code, len(trainings)) == (2, 2)
    assert "dataset.yaml: field name is missing or not a text" in refused.stderr


def test_train_on_a_broken_dataset_names_it() -> None:
    result = run("train", "--dataset", "nope")
    assert result.exit_code == 2
    assert "nope" in result.stderr.splitlines()[-1]


def test_a_model_in_the_state_folder_is_registered_when_it_is_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("var/models/m-1").mkdir(parents=True)
    Path("var/models/m-1/card.json").write_text("{}", encoding="utf-8")
    result = run("models", "activate", "m-1")
    assert result.exit_code == 1
    assert "m-1" in result.stderr
    assert "not a model artifact" in result.stderr
