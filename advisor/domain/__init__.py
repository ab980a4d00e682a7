"""The advisor's words: requests, candidates, recommendations, plans; frozen values without behaviour or I/O."""

from __future__ import annotations

from advisor.domain.access import TOKEN_SCOPES, AuditEntry, Caller, EventKind, ServiceEvent, Token, TokenScope
from advisor.domain.announcements import (
    ANNOUNCED,
    LEAST_PATIENCE,
    MOST_ANNOUNCED,
    PATIENCE,
    STOPPED_AT,
    UUID,
    Announced,
    Announcement,
    Malformed,
)
from advisor.domain.answer_reading import plan_from_json, recommendation_from_json, scene_effects_from_json
from advisor.domain.answers import (
    Advised,
    AnswerSource,
    Candidate,
    Command,
    Headroom,
    HostRanking,
    MitigationAction,
    MitigationStep,
    Move,
    Reason,
    ReasonKind,
    Recommendation,
    Rejection,
    TuningStep,
    settings_there,
)
from advisor.domain.bursts import (
    BatchAnswer,
    BatchOrder,
    BatchSummary,
    BurstFigures,
    BurstSearchEnd,
    BurstTrial,
    JointSearch,
)
from advisor.domain.calibration import Calibration, calibration_in_words
from advisor.domain.changes import (
    CHANGE_KINDS,
    ApplyMode,
    Change,
    ChangeKind,
    ChangeStanding,
    Freeze,
    LedgerEvent,
    LedgerLine,
    MeasuredEffect,
    PredictedEffect,
    Rollout,
    RolloutStanding,
    RolloutState,
    Verdict,
)
from advisor.domain.checkup import Alarms, Checkup, Delivered, OwnLoad
from advisor.domain.cloud import (
    CloudNow,
    Histories,
    History,
    HostDetail,
    HostNow,
    ResidentNow,
)
from advisor.domain.contradictions import Anomaly, AnomalyCause
from advisor.domain.cpu_maps import CpuMap, cpu_map
from advisor.domain.cpu_words import latency_in_words, short_of_cpu, speed, time_part
from advisor.domain.declared import Declared, DeclaredField, field_at, fields_of
from advisor.domain.dedicated import dedicated_vcpus
from advisor.domain.duration_words import duration_in_words
from advisor.domain.effects import (
    LONGEST_KNOWN_LATENCY,
    NO_SUPPORT,
    Band,
    CpuTime,
    Effect,
    EffectBasis,
    SceneEffects,
)
from advisor.domain.evidence import (
    EVIDENCE_LEVELS,
    Evidence,
    EvidenceLevel,
    LevelHeld,
    evidence_counts,
    evidence_in_words,
    evidence_level,
    held_in_words,
    is_guessed,
    rests_on,
)
from advisor.domain.host_memory import MEMORY_SHORT, NOTICED_PERCENT, STALLED_PERCENT, HostMemory
from advisor.domain.known import Find, asked_about, changed, found_in, unpinned
from advisor.domain.list_words import listed
from advisor.domain.names import NAMES, ids_by_name, known_as, names_of, spellings, spoken
from advisor.domain.obtained import InstanceObtained, Obtained
from advisor.domain.outcomes import AnsweredAs, PostedColocation, PredictedVsObserved, RecommendationOutcome
from advisor.domain.page import Page
from advisor.domain.plan_questions import (
    MOVING_KINDS,
    PINNING_POLICIES,
    PLACING_KINDS,
    PLAN_FOR,
    PLAN_KINDS,
    Allowance,
    Growth,
    NextKind,
    PinningPolicy,
    PlanFor,
    PlanKind,
    PlanRequest,
    WhatIf,
)
from advisor.domain.plans import (
    Capacity,
    ClassSizing,
    MoveSeen,
    Plan,
    PlanAction,
    PlanAge,
    PlanEnd,
    PlanEntry,
    PlanStep,
    PlanSums,
    RunwayPoint,
    Search,
    SpareCapacity,
    Usage,
    Variant,
)
from advisor.domain.probes import (
    PAIR_VALUES,
    PROBE_PINNINGS,
    ProbeDecision,
    ProbePair,
    ProbePinning,
    ProbePlan,
    ProbeReport,
    ProbeRequest,
    ProbeStep,
    ProbeTurn,
    pair_of,
)
from advisor.domain.questions import (
    OBJECTIVES,
    AskedObjective,
    Constraints,
    Inventory,
    NamedSize,
    Objective,
    PlacementRequest,
    Scene,
    like_another,
)
from advisor.domain.registered import Activation, ModelCard
from advisor.domain.replays import (
    REPLAY_JUDGES,
    TRACE_FORMS,
    RatioSpread,
    Repeat,
    Replay,
    Replayed,
    ReplayJudge,
    ReplayRequest,
    TraceForm,
)
from advisor.domain.scores import (
    LOW_SCORE,
    LOW_WINDOWS,
    NO_SCORES,
    SCORE_BUCKETS,
    CloudScores,
    LowScore,
    ScorePoint,
    ScoreSource,
    ScoreSummary,
    VmScore,
    VmScorePoint,
)
from advisor.domain.settings_words import AS_IS, settings_in_words, settings_named
from advisor.domain.slowing import (
    FELT,
    HostSlowing,
    MeasuredSlowing,
    Slowing,
    SlowingHere,
    SlowingPair,
    SlowingSource,
    beside,
)
from advisor.domain.summaries import CandidateSummary, RecommendationSummary
from advisor.domain.worth import (
    AdviceWorth,
    AlternativeNow,
    FaredAs,
    FaredBeside,
    Heeded,
    PlacementWorth,
    PredictedAndMeasured,
    WhyHost,
)
from models.data.profile import WorkloadProfile
from models.evaluation.quality import QualityGroup as ModelGroup
from models.evaluation.quality import QualityReport as ModelQuality
from models.profiling.profiles import InstanceProfile, PhaseProfile
from models.profiling.windows import MeanEstimate
from profiler.observed import Host, Instance, IsolationSettings, Pinning
