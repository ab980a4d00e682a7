"""Models: listed as candidates, activated by a second step, never able to break an answer."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models.learning.artifact
from advisor import offline, store
from advisor.domain import (
    Host,
    Instance,
    Inventory,
    ModelCard,
    PlacementRequest,
    PlanRequest,
    Scene,
    WorkloadProfile,
    codec,
)
from advisor.errors import AdvisorError, BrokenArtifact, InvalidInput, NotFound, StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store.engine import Database
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction
from tests.advisor.service.service_clock import Clock
from tests.models.test_models_artifact import edit

PAPERS = Path(__file__).parents[3] / "datasets" / "papers"
HOSTS = (Host("h1", "xen", 4, 8192), Host("h2", "xen", 4, 8192))
WEB = WorkloadProfile("web", {"cpu": 80.0})
CLOUD = Inventory(HOSTS, (Instance("a", host="h1", workload="web"),), (WEB,))
REQUEST = PlacementRequest(Instance("new", workload="web"), dry_run=True)
NEW = PlanRequest(instances=(Instance("n", workload="web"),))
SCENE = Scene(HOSTS[0], (Instance("a", workload="web"), Instance("b", workload="web")), (WEB,))


@pytest.fixture(autouse=True)
def _cloud(advisor: Advisor) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)


def spoil(artifact: Path) -> None:
    (artifact / "throughput.json").write_text("{}")


def test_of_many_models_only_the_card_of_the_one_that_is_asked_for_is_read(
    advisor: Advisor, trained: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, database = advisor.models.register(trained), Database(settings.database)
    with database.write() as connection:
        for at in range(5):
            store.models.add(connection, replace(card, version=f"other-{at}"))
    database.close()
    read, decode = [], codec.decode

    def noting(kind: type[Any], value: Any) -> Any:
        read.append(kind)
        return decode(kind, value)

    monkeypatch.setattr(codec, "decode", noting)
    assert advisor.models.get("other-3").version == "other-3"
    assert read.count(ModelCard) == 1
    assert advisor.models.get("analytic").status == "active"
    assert read.count(ModelCard) == 1
    for call in (advisor.models.get, advisor.models.activate):
        with pytest.raises(NotFound, match="there is no model other-9"):
            call("other-9")


def test_without_a_learned_model_the_prior_is_active_and_not_degraded_and_a_registered_one_is_a_candidate(
    advisor: Advisor, trained: Path
) -> None:
    (prior,) = advisor.models.listing()
    assert (prior.version, prior.status) == ("analytic", "active")
    answer = advisor.placements.place(REQUEST).recommendation
    assert (answer.model_version, answer.degraded, answer.notes) == ("analytic", False, ())
    assert len(answer.candidates) == 2
    card = advisor.models.register(trained)
    assert (card.version, card.status, card.origin) == (trained.name, "candidate", "simulated")
    assert card.card == models.learning.artifact.read_card(trained)
    assert advisor.models.get(card.version) == card
    assert advisor.models.register(trained) == card
    assert [one.status for one in advisor.models.listing()] == ["candidate", "active"]
    assert advisor.placements.place(REQUEST).recommendation.model_version == "analytic"


def test_an_active_model_answers_in_other_processes_too_and_the_prior_can_be_called_back(
    advisor: Advisor, trained: Path, settings: Settings, clock: Clock
) -> None:
    version = advisor.models.register(trained).version
    with Advisor(settings, clock=clock) as other:
        assert other.cloud.ready()["model"] == "analytic"
        assert advisor.models.activate(version).status == "active"
        assert other.cloud.ready()["model"] == version
    answer = advisor.placements.place(REQUEST).recommendation
    assert (answer.model_version, answer.model_origin, answer.degraded) == (version, "simulated", False)
    assert advisor.placements.predict(SCENE).model_version == version
    assert advisor.plans.make(PlanRequest(instances=(Instance("new", workload="web"),))).model_version == version
    assert advisor.cloud.ready()["model"] == version
    assert advisor.models.register(trained).status == "active"
    assert advisor.models.activate("analytic").status == "active"
    assert advisor.models.get(version).status == "retired"
    assert advisor.placements.place(REQUEST).recommendation.model_version == "analytic"


def test_an_artifact_is_copied_to_the_model_folder_and_outlives_its_source(
    advisor: Advisor, trained: Path, settings: Settings, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "download" / trained.name
    shutil.copytree(trained, elsewhere)
    version = advisor.models.register(elsewhere).version
    shutil.rmtree(elsewhere)
    advisor.models.activate(version)
    assert [path.name for path in settings.model_dir.iterdir()] == [version]
    assert not advisor.placements.place(REQUEST).recommendation.degraded


@pytest.mark.parametrize("kind", ["missing", "a file", "an empty folder", "spoilt"])
def test_a_broken_artifact_is_not_registered(advisor: Advisor, trained: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "broken"
    if kind == "a file":
        path.touch()
    elif kind == "an empty folder":
        path.mkdir()
    elif kind == "spoilt":
        shutil.copytree(trained, path)
        spoil(path)
    with pytest.raises(BrokenArtifact, match="broken"):
        advisor.models.register(path)
    assert len(advisor.models.listing()) == 1


def test_an_active_model_that_breaks_on_disk_degrades_the_answer_and_says_why(
    advisor: Advisor, trained: Path, settings: Settings, clock: Clock
) -> None:
    version = advisor.models.register(trained).version
    advisor.models.activate(version)
    spoil(settings.model_dir / version)
    with Advisor(settings, clock=clock) as restarted:
        answer = restarted.placements.place(REQUEST).recommendation
        assert restarted.placements.predict(SCENE).degraded
        assert restarted.cloud.ready()["degraded"]
    assert (answer.model_version, answer.degraded) == ("analytic", True)
    assert version in answer.notes[0]
    assert len(answer.candidates) == 2


@dataclass
class Faulty:
    """A predictor that fails in one way or another."""

    failure: str
    version: str = "m-faulty"
    origin: str = "measured"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        if self.failure == "raises":
            raise RuntimeError("out of order")
        good = PriorPredictor().predict(scenes)
        if self.failure == "shape":
            return PriorPredictor().predict(scenes.take(np.array([], dtype=np.int64)))
        if self.failure == "no bound":
            return replace(good, throughput=replace(good.throughput, lower=good.throughput.lower * np.nan))
        if self.failure == "no latency":
            return replace(good, latency=replace(good.latency, expected=good.latency.expected * np.nan))
        return replace(good, throughput=replace(good.throughput, expected=good.throughput.expected * np.nan))


@pytest.mark.parametrize("failure", ["raises", "shape", "nan", "no bound", "no latency"])
def test_a_predictor_that_fails_falls_back_to_the_prior(
    advisor: Advisor, trained: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.learning.artifact, "load", lambda _path: Faulty(failure, version=trained.name))
    monkeypatch.setattr(models.learning.artifact, "read_card", lambda _path: {})
    advisor.models.activate(advisor.models.register(trained).version)
    answer = advisor.placements.place(REQUEST).recommendation
    assert (answer.model_version, answer.degraded) == ("analytic", True)
    assert "failed" in answer.notes[0]
    assert advisor.placements.predict(SCENE).degraded
    assert advisor.plans.make(PlanRequest(instances=(Instance("new"),))).model_version == "analytic"


def test_a_filter_that_fails_fails_the_question(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("advisor.scheduling.filters.apply", broken)
    with pytest.raises(ZeroDivisionError):
        advisor.placements.place(REQUEST)
    assert advisor.outcomes.page().items == ()


def test_one_shot_questions_use_the_prior_then_the_newest_intact_artifact_then_the_named_one(
    trained: Path, tmp_path: Path
) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    assert offline.where(CLOUD, REQUEST, model=None, settings=settings).model_version == "analytic"
    shutil.copytree(trained, settings.model_dir / trained.name)
    edit(settings.model_dir / trained.name, "card.json", lambda card: card.update(refusals=[]))
    (settings.model_dir / "broken").mkdir()
    (settings.model_dir / "a-file").touch()
    answer = offline.where(CLOUD, REQUEST, model=None, settings=settings)
    assert (answer.model_version, answer.degraded) == (trained.name, False)
    assert offline.predict(SCENE, model=trained, settings=settings).model_version == trained.name
    assert offline.plan(CLOUD, NEW, model=trained, settings=settings).model_version == trained.name
    with pytest.raises(BrokenArtifact):
        offline.where(CLOUD, REQUEST, model=tmp_path / "none", settings=settings)


def test_a_broken_dataset_leaves_no_artifact_and_a_state_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    with pytest.raises(InvalidInput, match="not a dataset directory"):
        offline.train([tmp_path / "none"], settings=settings)
    with pytest.raises(InvalidInput, match="at least one dataset"):
        offline.train([], settings=settings)
    with pytest.raises(InvalidInput, match="not a dataset directory"):
        offline.evaluate([tmp_path / "none"], protocols=())
    (tmp_path / "link").symlink_to(PAPERS)
    for call in (partial(offline.train, settings=settings), partial(offline.evaluate, protocols=())):
        with pytest.raises(InvalidInput, match=f"dataset {PAPERS.resolve()} stands twice"):
            call([PAPERS, tmp_path / "link"])
    assert not settings.model_dir.exists()
    (tmp_path / "state").touch()
    monkeypatch.setattr(
        "models.training.fit_predictor", lambda *_, **__: pytest.fail("it is refused before the training")
    )
    with pytest.raises(StorageUnavailable, match="cannot be used"):
        offline.train([PAPERS], settings=settings)


@pytest.mark.usefixtures("undrawn")
def test_a_plan_is_written_as_a_report_or_the_reason_is_said(tmp_path: Path) -> None:
    plan = offline.plan(CLOUD, NEW, model=None, settings=Settings(state_dir=tmp_path))
    offline.write_plan_report(CLOUD, plan, tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(AdvisorError, match="does not exist"):
        offline.write_plan_report(CLOUD, plan, tmp_path / "missing" / "report.html")
