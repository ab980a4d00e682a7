"""The life of a model: judged, activated, shadowed, rolled back; one wins, and a broken one never does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Activation
from advisor.errors import AdvisorError, BrokenArtifact, Conflict, NotFound, RefusedByGate
from advisor.lifecycle.registry import ModelRegistry
from advisor.prediction import active
from advisor.service import Advisor
from advisor.settings import Settings
from tests.advisor.service.service_clock import Clock
from tests.advisor.store.at_once import at_once
from tests.models.made_models import make, seal

Register = Callable[..., str]


@pytest.fixture
def register(advisor: Advisor, trained: Path, tmp_path: Path) -> Register:
    """Registers a model that is off by so much on held-out rows; returns its version."""

    def registered(version: str, off: float | None = 0.02, **more: Any) -> str:
        return advisor.models.register(make(trained, tmp_path / "made", version, off, **more)).version

    return registered


def statuses(advisor: Advisor) -> dict[str, str]:
    return {card.version: card.status for card in advisor.models.listing()}


def assert_refused(advisor: Advisor, version: str) -> None:
    for call in (partial(advisor.models.activate, version, force=True), partial(advisor.models.shadow, version)):
        with pytest.raises(BrokenArtifact, match=version):
            call()


def test_a_candidate_is_registered_with_what_the_gate_says_and_not_activated_where_it_fails(
    advisor: Advisor, register: Register
) -> None:
    for version, off in (("m-good", 0.02), ("m-bad", 0.2), ("m-blind", None)):
        register(version, off)
    good, bad = advisor.models.get("m-good").verdict, advisor.models.get("m-bad").verdict
    assert good is not None
    assert bad is not None
    assert (good["passed"], good["refusals"], good["against"]) == (True, [], None)
    assert good["figures"][0]["analytic"]["other"] == pytest.approx(0.1, abs=0.001)
    assert bad["passed"] is False
    assert "worse than the analytic model" in bad["refusals"][0]
    assert advisor.models.get("analytic").verdict is None
    why = r"m-bad is refused by the gate \(throughput.* worse than the analytic model"
    with pytest.raises(RefusedByGate, match=why) as refused:
        advisor.models.activate("m-bad")
    assert refused.value.code == "model.refused"
    with pytest.raises(RefusedByGate, match="has no held-out predictions"):
        advisor.models.activate("m-blind")
    assert statuses(advisor) == {**dict.fromkeys(("m-good", "m-bad", "m-blind"), "candidate"), "analytic": "active"}
    assert advisor.cloud.ready()["model"] == "analytic"
    assert advisor.models.history() == ()


def test_force_overrules_the_gate_and_stands_in_the_history_where_it_was_needed(
    advisor: Advisor, register: Register, clock: Clock
) -> None:
    register("m-bad", 0.2)
    assert advisor.models.activate("m-bad", force=True).status == "active"
    assert advisor.cloud.ready()["model"] == "m-bad"
    assert advisor.models.history() == (Activation(clock(), "analytic", "m-bad", "force"),)
    assert advisor.models.get("m-bad").verdict["passed"] is False  # type: ignore[index]
    advisor.models.activate(register("m-good"), force=True)
    assert advisor.models.history()[1].cause == "activate"


def test_a_candidate_is_judged_again_by_who_answers_when_it_is_activated(advisor: Advisor, register: Register) -> None:
    register("m-fair", 0.06)
    register("m-good", 0.02)
    assert advisor.models.get("m-fair").verdict["passed"]  # type: ignore[index]
    advisor.models.activate("m-good")
    with pytest.raises(RefusedByGate, match="worse than the active model"):
        advisor.models.activate("m-fair")
    verdict = advisor.models.get("m-fair").verdict
    assert verdict is not None
    assert (verdict["passed"], verdict["against"]) == (False, "m-good")
    register("m-best", 0.01)
    advisor.models.activate("analytic")
    advisor.models.activate(
        "m-best"
    )  # the model that it was judged against at its registration does not answer any more
    assert advisor.models.get("m-best").verdict["against"] is None  # type: ignore[index]
    assert statuses(advisor) == {
        "m-best": "active",
        "m-fair": "candidate",
        "m-good": "retired",
        "analytic": "candidate",
    }


def test_judging_changes_nothing_but_the_verdict(advisor: Advisor, register: Register) -> None:
    register("m-fair", 0.06)
    advisor.models.activate(register("m-good", 0.02))
    before = statuses(advisor)
    assert advisor.models.judge("m-fair").verdict["against"] == "m-good"  # type: ignore[index]
    assert advisor.models.judge("m-good").verdict["passed"]  # type: ignore[index]
    assert advisor.models.judge("analytic").verdict is None
    assert statuses(advisor) == before
    for unknown in (advisor.models.judge, advisor.models.shadow):
        with pytest.raises(NotFound):
            unknown("m-none")


def test_a_broken_active_model_can_be_replaced(advisor: Advisor, register: Register, settings: Settings) -> None:
    advisor.models.activate(register("m-old", 0.02))
    (settings.model_dir / "m-old" / "card.json").write_text("{}", encoding="utf-8")
    assert advisor.models.activate(register("m-new", 0.05)).status == "active"
    reasons = advisor.models.get("m-new").verdict["reasons"]  # type: ignore[index]
    assert any("m-old cannot be used" in reason for reason in reasons)


def test_rollback_goes_back_step_by_step_to_the_prior(advisor: Advisor, register: Register) -> None:
    with pytest.raises(Conflict, match="no way back"):
        advisor.models.roll_back()
    for version, off in (("m-1", 0.05), ("m-2", 0.03), ("m-3", 0.01)):
        advisor.models.activate(register(version, off))
    assert [advisor.models.roll_back().version for _ in range(3)] == ["m-2", "m-1", "analytic"]
    assert advisor.cloud.ready()["model"] == "analytic"
    with pytest.raises(Conflict, match="no way back"):
        advisor.models.roll_back()
    reported = [(one.before, one.after, one.cause) for one in advisor.models.history("m-2")]
    assert reported == [
        ("m-1", "m-2", "activate"), ("m-2", "m-3", "activate"), ("m-3", "m-2", "rollback"), ("m-2", "m-1", "rollback"),
    ]  # fmt: skip


def test_what_was_activated_after_a_rollback_leads_back_to_where_that_led(advisor: Advisor, register: Register) -> None:
    advisor.models.activate(register("m-1", 0.05))
    advisor.models.activate(register("m-2", 0.03))
    advisor.models.roll_back()
    advisor.models.activate(register("m-3", 0.01))
    advisor.models.activate("analytic")
    assert [advisor.models.roll_back().version for _ in range(3)] == ["m-3", "m-1", "analytic"]


def test_a_model_that_answers_already_is_no_change(advisor: Advisor, register: Register) -> None:
    advisor.models.activate("analytic")
    assert advisor.models.history() == ()
    advisor.models.activate(register("m-1"))
    advisor.models.activate("m-1")
    assert len(advisor.models.history()) == 1


def test_a_rollback_to_a_broken_model_changes_nothing(advisor: Advisor, register: Register, settings: Settings) -> None:
    advisor.models.activate(register("m-1", 0.05))
    advisor.models.activate(register("m-2", 0.02))
    (settings.model_dir / "m-1" / "card.json").unlink()
    with pytest.raises(BrokenArtifact, match="m-1"):
        advisor.models.roll_back()
    assert advisor.cloud.ready()["model"] == "m-2"
    assert len(advisor.models.history()) == 2


def test_one_model_at_most_is_scored_beside_the_active_one_and_never_that_itself(
    advisor: Advisor, register: Register
) -> None:
    for version in ("m-1", "m-2", "m-3"):
        register(version)
    advisor.models.activate("m-3")
    assert advisor.models.shadow("m-1").status == "shadow"
    assert advisor.models.shadow("m-2").status == "shadow"
    with pytest.raises(Conflict, match="answers already"):
        advisor.models.shadow("m-3")
    assert statuses(advisor) == {"m-1": "candidate", "m-2": "shadow", "m-3": "active", "analytic": "candidate"}
    assert advisor.cloud.ready()["model"] == "m-3"
    assert advisor.models.shadow("analytic").version == "analytic"
    assert "shadow" not in statuses(advisor).values()
    advisor.models.shadow("m-1")
    assert advisor.models.activate("m-1").status == "active"
    assert "shadow" not in statuses(advisor).values()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [_flip, _cut, Path.unlink], ids=["a flipped bit", "a cut end", "a missing file"])
def test_harm_to_any_file_of_an_artifact_keeps_it_from_answering(
    advisor: Advisor, register: Register, settings: Settings, harm: Any
) -> None:
    advisor.models.activate(register("m-good", 0.05))
    register("m-new", 0.02)
    home = settings.model_dir / "m-new"
    for name in sorted(path.name for path in home.iterdir()):
        if name == "SHA256SUMS" and harm is _cut:
            continue  # without its last line feed it says the same
        kept = (home / name).read_bytes()
        harm(home / name)
        assert_refused(advisor, "m-new")
        with pytest.raises(BrokenArtifact, match="m-new"):
            advisor.models.judge("m-new")
        (home / name).write_bytes(kept)
    assert statuses(advisor) == {"m-new": "candidate", "m-good": "active", "analytic": "candidate"}
    answer = advisor.cloud.ready()
    assert (answer["model"], answer["degraded"]) == ("m-good", False)
    assert advisor.models.activate("m-new").status == "active"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("card.json", lambda text: json.dumps(json.loads(text) | {"schema": 999}), "schema 999"),
        ("held_out.csv", lambda _: "key,expected\na,1\n", r"held_out\.csv"),
    ],
    ids=["another schema", "held-out rows that make no sense"],
)
def test_an_artifact_that_makes_no_sense_is_refused_with_fitting_checksums(
    advisor: Advisor, trained: Path, tmp_path: Path, name: str, change: Callable[[str], str], reason: str
) -> None:
    made = make(trained, tmp_path / "made", "m-other")
    (made / name).write_text(change((made / name).read_text(encoding="utf-8")), encoding="utf-8")
    seal(made)
    with pytest.raises(BrokenArtifact, match=reason):
        advisor.models.register(made)
    assert statuses(advisor) == {"analytic": "active"}


def test_a_registered_model_that_was_altered_with_fitting_checksums_does_not_answer(
    advisor: Advisor, register: Register, settings: Settings
) -> None:
    advisor.models.activate(register("m-good", 0.05))
    register("m-new", 0.02)
    file = settings.model_dir / "m-new" / "throughput.json"
    target = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(target | {"ranges": {}}), encoding="utf-8")
    seal(settings.model_dir / "m-new")
    assert_refused(advisor, "m-new")
    assert statuses(advisor) == {"m-new": "candidate", "m-good": "active", "analytic": "candidate"}
    assert advisor.cloud.ready()["model"] == "m-good"


def test_of_two_activations_at_once_one_wins(
    advisor: Advisor, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [register("m-1", 0.02), register("m-2", 0.02, seed=1)]
    _meet(monkeypatch, ModelRegistry, "_judge")
    outcomes = at_once(*(partial(outcome, partial(advisor.models.activate, version)) for version in versions))
    won = [one for one in outcomes if not isinstance(one, AdvisorError)]
    (lost,) = (one for one in outcomes if isinstance(one, AdvisorError))
    assert isinstance(lost, Conflict)
    assert [card.version for card in won] == [advisor.cloud.ready()["model"]]
    assert "was activated meanwhile" in lost.message
    assert len(advisor.models.history()) == 1


def test_of_two_rollbacks_at_once_one_goes_back(
    advisor: Advisor, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, off in (("m-1", 0.05), ("m-2", 0.03), ("m-3", 0.01)):
        advisor.models.activate(register(version, off))
    _meet(monkeypatch, active, "load")
    outcomes = at_once(*[partial(outcome, advisor.models.roll_back)] * 2)
    monkeypatch.undo()
    assert sorted(type(one).__name__ for one in outcomes) == ["Conflict", "ModelCard"]
    assert advisor.cloud.ready()["model"] == "m-2"


def _meet(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let two callers both have finished a step before either goes on."""
    real, barrier = getattr(owner, name), threading.Barrier(2, timeout=120)

    def together(*arguments: Any) -> Any:
        found = real(*arguments)
        barrier.wait()
        return found

    monkeypatch.setattr(owner, name, together)


def outcome(call: Callable[[], Any]) -> Any:
    """What it returns or raises."""
    try:
        return call()
    except AdvisorError as error:
        return error
