"""Schemas of what commands print as JSON, and of profiles."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from advisor.domain import (
    InstanceProfile,
    PhaseProfile,
    ProbePlan,
    Recommendation,
    utc_time,
)
from api.schemas.base import AnswerBody, Time

# Schemas of measured profiles: an instance's phases with intervals, load and whether they are enough.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileAnswer:
    """An instance's phases in order of first appearance."""

    instance: Annotated[str, Field(description="the instance")]
    host: Annotated[str, Field(description="where it was measured")]
    begin: Annotated[datetime, Field(description="time of the first window")]
    end: Annotated[datetime, Field(description="time of the last window")]
    windows: Annotated[int, Field(description="number of windows")]
    window_s: Annotated[float, Field(description="seconds from one window to the next")]
    vcpus: Annotated[float | None, Field(description="its vCPUs")]
    phases: Annotated[tuple[PhaseProfile, ...], Field(description="its phases")]
    notes: Annotated[tuple[str, ...], Field(description="what else to know")]

    @classmethod
    def of(cls, profile: InstanceProfile) -> ProfileAnswer:
        """From the domain, without the windows themselves."""
        windows = profile.windows
        return cls(
            instance=profile.instance,
            host=profile.host,
            begin=utc_time(float(windows.times[0]) - windows.period_s),
            end=utc_time(float(windows.times[-1])),
            windows=len(windows),
            window_s=windows.period_s,
            vcpus=profile.vcpus,
            phases=profile.phases,
            notes=profile.notes,
        )


class PartOut(AnswerBody):
    """One part of what another system reports, such as its servers."""

    name: str = Field(description="the part")
    state: str = Field(description="read, refused (the account may not see it) or failed (the system did not answer)")
    rows: int = Field(description="rows that were read")
    reason: str = Field(description="why it was not read; empty where it was")


class SyncOut(AnswerBody):
    """What `cotenant sync` of a system found; with `--every` and `--watch` one such line for each read."""

    source: str = Field(description="the system")
    dry_run: bool = Field(description="true = nothing was written")
    complete: bool = Field(description="whether every part could be read")
    parts: list[PartOut] = Field(description="what was read, part by part")
    reported_hosts: int = Field(description="hosts that the system reported")
    hosts: list[str] = Field(description="ids of hosts that are new or changed")
    instances: list[str] = Field(description="ids of instances that are new or changed")
    gone_hosts: list[str] = Field(description="ids of hosts that are gone")
    gone_instances: list[str] = Field(description="ids of instances that are gone")
    left_out: list[str] = Field(description="sentences: what was not taken, and why")


class LoadedOut(AnswerBody):
    """What `cotenant sync FILE` loaded."""

    dry_run: bool = Field(default=False, description="true = nothing was written; there is no `generation` then")
    generation: int | None = Field(default=None, description="that the inventory is at since then")
    hosts: int = Field(description="hosts in the file")
    instances: int = Field(description="instances in the file")
    workloads: int = Field(description="workloads in the file")
    left_out: list[str] | None = Field(default=None, description="what was not taken, a sentence each")


class HistoryOut(AnswerBody):
    """What `cotenant history` learned."""

    dry_run: bool = Field(description="true = nothing was written")
    instances: dict[str, list[str]] = Field(description="instances that were watched: resources whose demand is known")
    changed: list[str] = Field(description="ids of instances whose demand is another one since then")
    unknown: list[str] = Field(description="names that the system knows and no instance has")
    silent: list[str] = Field(description="queries that gave no series")
    failed: list[str] = Field(description="sentences: what could not be read")


class TokenOut(AnswerBody):
    """A token without its secret."""

    id: str = Field(description="the token")
    name: str = Field(description="person or program that it is for")
    scope: str = Field(description="act, read, write or admin")
    host: str | None = Field(description="the host whose agent it is for; null = it is for no agent")
    state: Literal["valid", "expired", "revoked"] = Field(description="whether it is still taken")
    created_at: Time = Field(description="when it was made")
    expires_at: Time | None = Field(description="when it ends; null = never")
    revoked_at: Time | None = Field(description="when it was revoked; null = it was not")


class TokenMade(TokenOut):
    """A token with its secret, which is shown this once."""

    token: str = Field(description="the secret")


class MoveOut(AnswerBody):
    """One move of a plan."""

    model_config = ConfigDict(validate_by_name=True)

    instance: str = Field(description="id of the instance")
    name: str = Field(description="its name in the other system")
    source: str = Field(alias="from", description="the host that it leaves")
    to: str = Field(description="the host that it goes to")
    why: str = Field(description="why it moves")
    request: dict[str, Any] = Field(description="what the other system is asked for")
    became: str | None = Field(description="done, refused, changed, failed or left; null = it was not tried")
    said: str | None = Field(description="that as a sentence")


class MigrationOut(AnswerBody):
    """What `cotenant migrate` planned and did; with `--every` one such line for each round."""

    at: Time = Field(description="when it began")
    apply: bool = Field(description="whether moves are carried out")
    plan: str | None = Field(description="id of the plan; null = none was made")
    waits: str | None = Field(description="why no plan was made; null where one was, or no instance may be moved")
    below_before: int | None = Field(description="instances below their limit as it was")
    below_after: int | None = Field(description="instances below their limit after all moves, as predicted")
    moves: list[MoveOut] = Field(description="moves of the plan in their order")
    stay: dict[str, str] = Field(description="instances that may not move, by name: why")
    notes: list[str] = Field(description="what else to know of the plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlanAnswer(ProbePlan):
    """Which pairs to measure next, in words, and the campaign that was written."""

    sentence: Annotated[str, Field(description="the plan in words")]
    campaign: Annotated[str | None, Field(description="path of the campaign; null = none was written")] = None
    not_in_campaign: Annotated[
        tuple[str, ...] | None, Field(description="pairs that the lab cannot run, and why; null = not asked for")
    ] = None


class ReportOut(AnswerBody):
    """A report that was written."""

    report: str = Field(description="path of its folder")
    headline: str = Field(description="what it says first")
    removed: list[str] = Field(description="names of older reports that were deleted")


class SnapshotOut(AnswerBody):
    """A cloud that was written as a file."""

    file: str = Field(description="path of the file")
    renamed: bool = Field(description="whether names are made up")
    hosts: int = Field(description="how many hosts it has")
    instances: int = Field(description="how many VMs it has")
    workloads: int = Field(description="how many workload profiles it has")


class KnownOut(AnswerBody):
    """What is known of the example cloud."""

    hosts: int = Field(description="hosts in it")
    instances: int = Field(description="instances in it")
    sizes_only: int = Field(description="instances of which only the size is known")
    demands: int = Field(description="instances whose demand for CPUs is known")


class DemoOut(AnswerBody):
    """What `cotenant demo` answers."""

    known: KnownOut = Field(description="the cloud that was asked about")
    most_free: str | None = Field(description="the host that Nova's default CPU and RAM weighers would choose")
    recommendation: Recommendation = Field(description="the answer")


class TrainingOut(AnswerBody):
    """A model that `cotenant train` made."""

    version: str = Field(description="the model")
    artifact: str = Field(description="path of its folder")
    registered: bool = Field(description="whether it is in the registry")
    activated: bool | None = Field(default=None, description="whether it answers since then; only with --auto")
    verdict: dict[str, Any] | None = Field(description="what the gate says, as of a registered model; null = not asked")


class SavedOut(AnswerBody):
    """A workload that was stored."""

    workload: str = Field(description="its name")
    platform: str = Field(description="where it was measured; empty = not said")
    origin: str = Field(description="measured or extrapolated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOut(ProfileAnswer):
    """The phases that were asked for, and what was stored of them."""

    saved: Annotated[SavedOut | None, Field(description="the workload that --save stored; null = none")] = None


class RevisionOut(AnswerBody):
    """State of the database's tables."""

    revision: str = Field(description="name of their newest change")


class PruneOut(AnswerBody):
    """How much was forgotten."""

    samples: int = Field(description="samples that became five-minute means")
    rollups: int = Field(description="five-minute means that expired")
    series: int = Field(description="series that ended")
    recommendations: int = Field(description="answers that expired")
    plans: int = Field(description="plans that expired")


class BackupOut(AnswerBody):
    """What is in a backup."""

    revision: str = Field(description="name of the newest change of its tables")
    made_at: str = Field(description="when it was made, as an RFC 3339 time")
    rows: dict[str, int] = Field(description="rows of each table")


class ProtocolOut(AnswerBody):
    """Errors of models on rows that they did not learn from; only `models` is there where it was skipped."""

    skipped: str | None = Field(default=None, description="why the dataset does not allow this protocol")
    rows: int | None = Field(default=None, description="predictions that were judged")
    folds: int | None = Field(default=None, description="how often was trained")
    noise: dict[str, float] | None = Field(default=None, description="errors of repeats among each other")
    best_baseline: dict[str, str] | None = Field(default=None, description="baseline with the lowest error, by figure")
    difference: dict[str, Any] | None = Field(default=None, description="Cotenant's error minus that baseline's")
    models: dict[str, dict[str, Any]] = Field(description="figures of each model, with 95 % intervals")
    compositions: dict[str, dict[str, Any]] | None = Field(default=None, description="figures of simple compositions")
    best_composition: dict[str, str] | None = Field(default=None, description="composition with the lowest error")
    difference_to_composition: dict[str, Any] | None = Field(
        default=None, description="Cotenant's error minus that composition's"
    )
    by_platform: list[dict[str, Any]] | None = Field(default=None, description="Cotenant's errors on each platform")
    by_resource: list[dict[str, Any]] | None = Field(default=None, description="its errors by what limited instances")
    by_predicted: list[dict[str, Any]] | None = Field(default=None, description="its errors by what was predicted")


class EvaluationOut(AnswerBody):
    """Errors of models on one dataset."""

    dataset: str = Field(description="its name, or those of several joined by +")
    origin: str = Field(description="paper, measured or simulated")
    rows: int = Field(description="measured throughput ratios")
    workloads: int = Field(description="workloads in them")
    platforms: int = Field(description="platforms in them")
    columns: int = Field(description="metrics of each workload")
    limits: dict[str, str] = Field(description="what some models cannot do, as sentences")
    average_rank: dict[str, float] = Field(description="mean rank of each model over the protocols, 1 = best")
    protocols: dict[str, ProtocolOut] = Field(description="what is left out of training: the errors then")


class EvaluationsOut(AnswerBody):
    """Errors of models on several datasets, each by itself."""

    datasets: list[EvaluationOut] = Field(description="one for each dataset")
    average_rank: dict[str, float] = Field(description="mean rank of each model over all of them, 1 = best")
