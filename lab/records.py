"""The record of a finished run, and its compact form as one line of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from lab.measure import KERNEL_TABLES, RunMeasurement
from lab.schedule import PlacedMember, Run
from lab.usage_windows import UsageSeries
from profiler.collectors import unit_of
from profiler.observed import IsolationSettings, format_cpus

_DIGITS = 6  # more is noise
_Value = tuple[str | None, str, str, float, str]
THROUGHPUT = "throughput"
SETTINGS = ("cap_percent", "weight", "net_mode", "net_rate_mbit", "disk_limit_mb_s")


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One instance of a finished run; `rate` is the requested load in the workload's unit, None = saturation.

    `outcomes` are those of the dataset format, `further` everything else that the workload reported: name -> (value,
    unit). `cpu_speed` is the mean of its CPUs, see `lab.cpu_speed`.
    """

    instance: str
    workload: str
    label: str
    load: float
    vcpus: int
    pinning: str
    clients: str | None
    settings: Mapping[str, Any]
    solo_key: str
    unit: str
    rate: float | None
    outcomes: Mapping[str, float]
    generator_percent: float | None
    further: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    cpu_speed: float | None = None


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The circumstances of one run.

    `qdisc` is the digest of the lab's own qdiscs, whose text the journal keeps once; `net_dropped` are the packets that
    they dropped during the run; `load` is the host's load average over a minute when the run began.
    """

    round_started: str = ""
    load: float | None = None
    qdisc: str | None = None
    net_dropped: int | None = None


@dataclass(frozen=True, slots=True)
class StateOutcome:
    """One outcome of the member at `place` while those of `state` worked; `error` is that of together / alone."""

    state: tuple[int, ...]
    place: int
    outcome: str
    alone: float
    together: float
    error: float
    pairs: int

    def entry(self) -> list[Any]:
        """As JSON, with as many digits as mean something."""
        values = (self.alone, self.together, self.error)
        return [list(self.state), self.place, self.outcome, *(float(f"{value:.6g}") for value in values), self.pairs]

    @classmethod
    def load(cls, entry: Sequence[Any]) -> StateOutcome:
        """Inverse of `entry`; TypeError or ValueError for anything else."""
        state, place, outcome, alone, together, error, pairs = entry
        return cls(
            tuple(map(int, state)), int(place), str(outcome), float(alone), float(together), float(error), int(pairs)
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One finished run of one round. `values` are (instance, scope, metric, value, unit).

    A run on/off has `states`: what each member reached in each, beside what it reached alone. The outcomes of its
    members are then those of the state in which every member works.
    """

    kind: str
    run: str
    round: int
    pinning: str
    started: str
    seconds: float
    members: tuple[MemberRecord, ...]
    values: tuple[_Value, ...]
    steal_percent: float | None
    foreign_percent: float | None
    disturbed: bool
    took_s: float
    dropped: tuple[str, ...] = ()
    driver_cpus: str | None = None
    warmup_s: float = 0.0
    unsteady: tuple[str, ...] = ()
    around: RunConditions = RunConditions()
    series: UsageSeries = field(default_factory=UsageSeries)
    states: tuple[StateOutcome, ...] = ()

    @classmethod
    def of(
        cls, run: Run, number: int, measured: RunMeasurement, rates: Mapping[str, float | None], units: Mapping[str,
        str], took_s: float, around: RunConditions | None = None, states: tuple[StateOutcome, ...] = (),
    ) -> Record:  # fmt: skip
        """The record of a run that has just finished."""
        driver = run.placed[0].driver
        return cls(
            run.kind, run.run, number, run.pinning, measured.started, _short(measured.seconds),
            tuple(_member(entry, measured, rates, units) for entry in run.placed),
            tuple((v.instance, v.scope, v.metric, _short(v.value), v.unit) for v in measured.values),
            _known(measured.steal_percent), _known(measured.foreign_percent), measured.disturbed, _short(took_s),
            measured.dropped, None if driver is None else format_cpus(driver), round(measured.warmup_s, 2),
            measured.unsteady, around or RunConditions(), measured.series, states,
        )  # fmt: skip

    def entry(self) -> dict[str, Any]:
        """As one object of JSON, small: values by instance and scope without units, windows as lists."""
        entry = {name: getattr(self, name) for name in _PLAIN}
        by_scope: dict[str, dict[str, float]] = {}
        for instance, scope, metric, value, _unit in self.values:
            by_scope.setdefault(f"{scope}:{instance or ''}", {})[metric] = value
        members = [
            {name: value for name, value in asdict(member).items() if value not in (None, {})}
            | {"settings": {name: value for name, value in member.settings.items() if value is not None}}
            for member in self.members
        ]
        series = {"at_s": self.series.at_s, **self.series.values}
        states = {"states": [state.entry() for state in self.states]} if self.states else {}
        around = asdict(self.around)
        return {**entry, "members": members, "values": by_scope, "around": around, "series": series, **states}

    @classmethod
    def load(cls, entry: Mapping[str, Any]) -> Record:
        """Inverse of `entry`; KeyError, TypeError, ValueError or AttributeError when it is not a record."""
        windows = dict(entry["series"])
        at_s = tuple(windows.pop("at_s"))
        values = {
            name: {metric: tuple(series) for metric, series in metrics.items()} for name, metrics in windows.items()
        }
        plain = {name: entry[name] for name in _PLAIN}
        if not all(isinstance(plain[name], str) for name in _TEXTS) or type(plain["round"]) is not int:
            raise TypeError("a run is named by texts and a round by a number")
        return cls(
            **{**plain, "dropped": tuple(plain["dropped"]), "unsteady": tuple(plain["unsteady"])},
            members=tuple(_loaded(member) for member in entry["members"]),
            values=tuple(_values(entry["values"])),
            around=RunConditions(**entry["around"]),
            series=UsageSeries(at_s, values),
            states=tuple(StateOutcome.load(state) for state in entry.get("states", ())),
        )


_PLAIN = (
    "kind", "run", "round", "pinning", "started", "seconds", "steal_percent", "foreign_percent", "disturbed", "took_s",
    "dropped", "driver_cpus", "warmup_s", "unsteady",
)  # fmt: skip
_TEXTS = ("kind", "run", "pinning", "started")


def _values(by_scope: Mapping[str, Mapping[str, float]]) -> list[_Value]:
    values: list[_Value] = []
    for key, metrics in by_scope.items():
        scope, _, name = key.partition(":")
        values += [
            (name or None, scope, metric, float(value), KERNEL_TABLES.get(metric) or unit_of(metric))
            for metric, value in metrics.items()
        ]
    return values


def _loaded(member: Mapping[str, Any]) -> MemberRecord:
    absent: dict[str, Any] = dict.fromkeys(("clients", "rate", "generator_percent", "cpu_speed")) | {"outcomes": {}}
    further = {name: (float(value), str(unit)) for name, (value, unit) in member.get("further", {}).items()}
    settings = dict.fromkeys(SETTINGS) | dict(member.get("settings", {}))
    return MemberRecord(**{**absent, **member, "further": further, "settings": settings})


def _member(
    entry: PlacedMember, measured: RunMeasurement, rates: Mapping[str, float | None], units: Mapping[str, str]
) -> MemberRecord:
    member, reached = entry.member, measured.reached[entry.instance]
    return MemberRecord(
        entry.instance, member.workload, member.label, member.load, member.vcpus, str(entry.pinning),
        None if entry.clients is None else format_cpus(entry.clients), _settings(member.settings), entry.solo_key,
        units[member.workload], _known(rates.get(entry.instance)),
        {name: _short(value) for name, value in reached.outcomes().items()},
        _known(measured.generator_percent.get(entry.instance)),
        {name: (_short(value), unit) for name, (value, unit) in reached.further.items()},
        _known(fmean(measured.speeds[cpu] for cpu in entry.cpus) if set(entry.cpus) <= set(measured.speeds) else None),
    )  # fmt: skip


def _settings(settings: IsolationSettings) -> dict[str, Any]:
    net = settings.network
    values = (
        settings.cap_percent, settings.weight, net.mode if net else None, net.rate_mbit if net else None,
        settings.disk_limit_mb_s,
    )  # fmt: skip
    return dict(zip(SETTINGS, values, strict=True))


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _known(value: float | None) -> float | None:
    return None if value is None else _short(value)
