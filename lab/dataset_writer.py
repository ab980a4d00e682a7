"""Writes finished runs as a dataset directory: dataset.yaml and CSV tables, each replaced atomically."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.campaign import Campaign
from lab.dataset_description import describe_dataset
from lab.on_off.states import State
from lab.records import SETTINGS, MemberRecord, Record
from lab.schedule import profile_keys
from lab.workloads import MemoryWorkload
from lab.workloads.disk import DiskMixWorkload, DiskWorkload
from profiler.backends.host_description import HostDescription
from profiler.files import write_whole

PLATFORMS = (
    "platform", "kind", "pcpus", "threads_per_core", "cpu_mhz", "l2_mb", "l3_mb", "memory_mb", "nic_mbit", "disk_kind",
    "disk_mb_s", "disk_iops", "host_cap_percent",
)  # fmt: skip
PROFILES = ("platform", "workload", "load", "scope", "metric", "value", "unit", "repeat")
COLOCATIONS = (
    "run", "platform", "instance", "workload", "load", "vcpus", "pinning", "driver_cpus", "cap_percent", "weight",
    "net_mode", "net_rate_mbit", "disk_limit_mb_s", "outcome", "solo", "colocated", "unit", "repeat",
)  # fmt: skip
ON_OFF_COLOCATIONS = (*COLOCATIONS, "ratio_se")
RUNS = (
    "run", "repeat", "kind", "pinning", "started", "seconds", "steal_percent", "foreign_percent", "disturbed",
    "instance", "clients", "generator_percent", "rate", "dropped", "driver_cpus", "unsteady", "warmup_s",
    "round_started", "load_before", "net_dropped", "qdisc", "cpu_speed",
)  # fmt: skip
METRICS = ("run", "repeat", "instance", "workload", "scope", "metric", "value", "unit")
OUTCOMES = ("run", "repeat", "instance", "workload", "outcome", "value", "unit")
SERIES = ("run", "repeat", "instance", "metric", "at_s", "value")
_OUTCOME_UNITS = {
    "latency_mean_ms": "ms", "latency_p95_ms": "ms", "jitter_ms": "ms", "timeouts_percent": "%", "runtime_s": "s",
}  # fmt: skip
_KINDS = {"container": "lxc", "qemu": "kvm", "xen": "xen"}  # as platforms.csv names hypervisors; others by their own
_Row = Sequence[object]


def write_dataset(
    directory: Path,
    campaign: Campaign,
    records: Sequence[Record],
    machine: HostDescription,
    circumstances: Mapping[str, Any],
) -> None:
    """Write all tables, each whole or not at all. OSError when the disk refuses; then earlier tables stay.

    `circumstances` are for dataset.yaml. The same records give the same bytes, also of compressed tables.
    """
    measured = [record for record in records if record.kind != "calibration"]
    _write(directory / "platforms.csv", PLATFORMS, _platforms(campaign, machine, measured))
    _write(directory / "profiles.csv", PROFILES, _profiles(campaign, measured))
    columns = COLOCATIONS if campaign.on_off is None else ON_OFF_COLOCATIONS
    _write(directory / "colocations.csv", columns, _colocations(campaign, measured))
    _write(directory / "runs.csv", RUNS, _runs(records))
    _write(directory / "metrics.csv.gz", METRICS, _metrics(measured))
    (directory / "metrics.csv").unlink(missing_ok=True)  # earlier versions wrote it; it would be of other runs
    _write(directory / "outcomes.csv", OUTCOMES, _outcomes(records))
    _write(directory / "series.csv.gz", SERIES, _series(records))
    description = describe_dataset(campaign, records, machine, circumstances)
    text = yaml.safe_dump(description, sort_keys=False, allow_unicode=True, width=110)
    write_whole(directory / "dataset.yaml", text.encode())


def _platforms(campaign: Campaign, machine: HostDescription, records: Sequence[Record]) -> Iterable[_Row]:
    """The host with a link of its own for each instance and, where runs had one, the host with one uplink for all."""
    if (emulated := campaign.emulated) is not None:  # its caches and clock are a part of this host's, and unknown
        yield (campaign.platform, "xen", emulated.pcpus, 1, None, None, None, emulated.memory_mb, None, "", *[None] * 3)
        return
    names = {_platform(campaign, record): _on_uplink(record) for record in records if record.kind == "group"}
    for name, uplink in sorted({campaign.platform: False, **names}.items()):
        # A virtual disk says nothing about what it lies on, so disk_kind stays empty rather than guessed.
        volume = campaign.volume
        disk = ("", None, None) if volume is None else ("network", volume.mb_s, volume.requests_s)
        yield (
            name, _KINDS.get(campaign.instances, campaign.instances), machine.pcpus, machine.threads_per_core,
            machine.cpu_mhz, machine.l2_mb, machine.l3_mb, machine.memory_mb, _nic_mbit(campaign, uplink), *disk,
            campaign.host_cap_percent,
        )  # fmt: skip


def _nic_mbit(campaign: Campaign, uplink: bool) -> float | None:
    """Rate of what all instances send through, where there is such a thing."""
    return campaign.line_mbit or (campaign.link_mbit if uplink else None)


def _platform(campaign: Campaign, record: Record) -> str:
    """Another wiring is another platform: what instances share decides how they disturb each other."""
    return f"{campaign.platform}-uplink" if _on_uplink(record) else campaign.platform


def _on_uplink(record: Record) -> bool:
    return any(member.settings["net_mode"] == "shared" for member in record.members)


def _profiles(campaign: Campaign, records: Iterable[Record]) -> Iterable[_Row]:
    """How each workload behaves alone, on the first place of the first pinning form."""
    keys = profile_keys(campaign)
    for record in records:
        if record.kind != "solo" or record.run not in keys:
            continue
        member = record.members[0]
        head = (campaign.platform, member.workload, member.load)
        for instance, scope, metric, value, unit in record.values:
            if instance is None or scope == "instance":  # an instance that is alone has the whole driver domain
                yield (*head, scope, metric, value, unit, record.round)
        for outcome, value in member.outcomes.items():
            yield (*head, "instance", outcome, value, _unit(outcome, member), record.round)
        workload, throughput = campaign.workloads[member.workload], member.outcomes.get("throughput")
        if isinstance(workload, MemoryWorkload):  # its throughput is the bandwidth it takes
            yield (*head, "instance", "mem_bw_mb_s", throughput, "MB/s", record.round)
        if isinstance(workload, DiskWorkload | DiskMixWorkload) and throughput is not None:
            for metric, value in workload.disk_rates(throughput).items():  # which the groups of containers do not count
                yield (*head, "instance", metric, value, "1/s", record.round)
        if member.generator_percent is not None:
            yield (*head, "host", "load_generator_cpu", member.generator_percent, "%", record.round)


def _colocations(campaign: Campaign, records: Sequence[Record]) -> Iterable[_Row]:
    """One row per instance, run and outcome, beside the solo value of the same round and place.

    On/off, each state of a run is a co-location, beside the solo value of the same run, with the standard error of
    their ratio: `same:a:b:c/1+3` is the state of `same:a:b:c` in which its first and third members worked.
    """
    solos = {(record.run, record.round): record.members[0].outcomes for record in records if record.kind == "solo"}
    for record in records:
        if record.kind != "group":
            continue
        platform = _platform(campaign, record)
        if campaign.on_off is not None:
            yield from _states(record, platform)
            continue
        for member in record.members:
            solo = solos.get((member.solo_key, record.round), {})
            for outcome, value in member.outcomes.items():
                yield (
                    record.run, platform, member.instance, member.workload, member.load, member.vcpus,
                    member.pinning, record.driver_cpus, *(member.settings[name] for name in SETTINGS), outcome,
                    solo.get(outcome), value, _unit(outcome, member), record.round,
                )  # fmt: skip


def _states(record: Record, platform: str) -> Iterable[_Row]:
    for outcome in record.states:
        member = record.members[outcome.place]
        yield (
            state_run(record.run, outcome.state, len(record.members)), platform, member.instance, member.workload,
            member.load, member.vcpus, member.pinning, record.driver_cpus,
            *(member.settings[name] for name in SETTINGS), outcome.outcome, outcome.alone, outcome.together,
            _unit(outcome.outcome, member), record.round, outcome.error,
        )  # fmt: skip


def state_run(run: str, state: State, members: int) -> str:
    """The name that a state has as a run of its own; the state in which every member works has the run's."""
    return run if len(state) == members else f"{run}/{'+'.join(str(place + 1) for place in state)}"


def _runs(records: Iterable[Record]) -> Iterable[_Row]:
    for record in records:
        around = record.around
        for member in record.members:
            yield (
                record.run, record.round, record.kind, record.pinning, record.started, record.seconds,
                record.steal_percent, record.foreign_percent, int(record.disturbed), member.instance, member.clients,
                member.generator_percent, member.rate, "; ".join(record.dropped), record.driver_cpus,
                int(member.instance in record.unsteady), record.warmup_s, around.round_started, around.load,
                around.net_dropped, around.qdisc, member.cpu_speed,
            )  # fmt: skip


def _metrics(records: Iterable[Record]) -> Iterable[_Row]:
    for record in records:
        workloads = {member.instance: member.label for member in record.members}
        for instance, scope, metric, value, unit in record.values:
            name = workloads.get(instance, "") if instance else ""
            yield (record.run, record.round, instance, name, scope, metric, value, unit)


def _outcomes(records: Iterable[Record]) -> Iterable[_Row]:
    """Everything that workloads reported, calibrations included."""
    for record in records:
        for member in record.members:
            head = (record.run, record.round, member.instance, member.workload)
            for outcome, value in member.outcomes.items():
                yield (*head, outcome, value, _unit(outcome, member))
            for name, (value, unit) in member.further.items():
                yield (*head, name, value, unit)


def _series(records: Iterable[Record]) -> Iterable[_Row]:
    for record in records:
        for instance, metrics in record.series.values.items():
            for metric, windows in metrics.items():
                for at_s, value in zip(record.series.at_s, windows, strict=True):
                    yield (record.run, record.round, instance, metric, at_s, value)


def _unit(outcome: str, member: MemberRecord) -> str:
    return _OUTCOME_UNITS.get(outcome, member.unit)


def _write(path: Path, header: Sequence[str], rows: Iterable[_Row]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    content = buffer.getvalue().encode()
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _cell(value: object) -> object:
    """Unknown is an empty cell. Floats keep six significant digits; more would be noise."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
