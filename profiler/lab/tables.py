"""Finished runs into the dataset directory of the contract: dataset.yaml and CSV tables, each replaced in one step."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from profiler.lab.campaign import Campaign, PinningForm
from profiler.lab.circumstances import Machine
from profiler.lab.journal import MemberRecord, Record
from profiler.lab.schedule import profile_keys
from profiler.lab.workloads import Memory
from profiler.observed import format_cpus

PLATFORMS = (
    "platform", "kind", "pcpus", "threads_per_core", "cpu_mhz", "l2_mb", "l3_mb", "memory_mb", "nic_mbit", "disk_kind",
)  # fmt: skip
PROFILES = ("platform", "workload", "load", "scope", "metric", "value", "unit", "repeat")
COLOCATIONS = (
    "run", "platform", "instance", "workload", "load", "vcpus", "pinning", "driver_cpus", "cap_percent", "weight",
    "net_mode", "net_rate_mbit", "disk_limit_mb_s", "outcome", "solo", "colocated", "unit", "repeat",
)  # fmt: skip
RUNS = (
    "run", "repeat", "kind", "pinning", "started", "seconds", "steal_percent", "foreign_percent", "disturbed",
    "instance", "clients", "generator_percent", "rate", "dropped",
)  # fmt: skip
METRICS = ("run", "repeat", "instance", "workload", "scope", "metric", "value", "unit")
_OUTCOME_UNITS = {"latency_mean_ms": "ms", "latency_p95_ms": "ms"}
_Row = Sequence[object]


def write_dataset(
    directory: Path, campaign: Campaign, records: Sequence[Record], machine: Machine, found: dict[str, str]
) -> None:
    """Write all tables; each is complete or not there. OSError when the disk refuses, earlier tables stay."""
    measured = [record for record in records if record.kind != "calibration"]
    _write(directory / "platforms.csv", PLATFORMS, _platforms(campaign, machine, measured))
    _write(directory / "profiles.csv", PROFILES, _profiles(campaign, measured))
    _write(directory / "colocations.csv", COLOCATIONS, _colocations(campaign, measured))
    _write(directory / "runs.csv", RUNS, _runs(records))
    _write(directory / "metrics.csv", METRICS, _metrics(measured))
    description = _description(campaign, records, machine, found)
    text = yaml.safe_dump(description, sort_keys=False, allow_unicode=True, width=110)
    _replace(directory / "dataset.yaml", text)


def _platforms(campaign: Campaign, machine: Machine, records: Sequence[Record]) -> Iterable[_Row]:
    """The host with a link of its own for each instance, and, where runs had that, with one uplink for all."""
    names = {_platform(campaign, record): _on_uplink(record) for record in records if record.kind == "group"}
    for name, uplink in sorted({campaign.platform: False, **names}.items()):
        # A virtual disk says nothing about what it lies on, so disk_kind stays empty rather than guessed.
        yield (
            name, "lxc", machine.pcpus, machine.threads_per_core, machine.cpu_mhz, machine.l2_mb,
            machine.l3_mb, machine.memory_mb, campaign.link_mbit if uplink else None, "",
        )  # fmt: skip


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
        if member.label not in (member.workload, f"{member.workload}.load{member.load:g}"):
            continue  # held back by a cap or a limit: that is not how the workload is
        head = (campaign.platform, member.workload, member.load)
        for instance, scope, metric, value, unit in record.values:
            if instance is None or scope == "instance":  # alone, its part of the driver domain is the whole of it
                yield (*head, scope, metric, value, unit, record.round)
        for outcome, value in member.outcomes.items():
            yield (*head, "instance", outcome, value, _unit(outcome, member), record.round)
        if isinstance(campaign.workloads[member.workload], Memory):  # what it reaches is the bandwidth it takes
            yield (*head, "instance", "mem_bw_mb_s", member.outcomes.get("throughput"), "MB/s", record.round)
        if member.generator_percent is not None:
            yield (*head, "host", "load_generator_cpu", member.generator_percent, "%", record.round)


def _colocations(campaign: Campaign, records: Sequence[Record]) -> Iterable[_Row]:
    """One row per instance, run and outcome, beside the solo value of the same round and place."""
    solos = {(record.run, record.round): record.members[0].outcomes for record in records if record.kind == "solo"}
    for record in records:
        if record.kind != "group":
            continue
        where = _platform(campaign, record)
        for member in record.members:
            solo = solos.get((member.solo_key, record.round), {})
            settings = member.settings
            for outcome, value in member.outcomes.items():
                yield (
                    record.run, where, member.instance, member.workload, member.load, member.vcpus,
                    member.pinning, "", settings["cap_percent"], settings["weight"], settings["net_mode"],
                    settings["net_rate_mbit"], settings["disk_limit_mb_s"], outcome, solo.get(outcome), value,
                    _unit(outcome, member), record.round,
                )  # fmt: skip


def _runs(records: Iterable[Record]) -> Iterable[_Row]:
    for record in records:
        for member in record.members:
            yield (
                record.run, record.round, record.kind, record.pinning, record.started, record.seconds,
                record.steal_percent, record.foreign_percent, int(record.disturbed), member.instance, member.clients,
                member.generator_percent, member.rate, "; ".join(record.dropped),
            )  # fmt: skip


def _metrics(records: Iterable[Record]) -> Iterable[_Row]:
    for record in records:
        workloads = {member.instance: member.label for member in record.members}
        for instance, scope, metric, value, unit in record.values:
            name = workloads.get(instance, "") if instance else ""
            yield (record.run, record.round, instance, name, scope, metric, value, unit)


def _unit(outcome: str, member: MemberRecord) -> str:
    return _OUTCOME_UNITS.get(outcome, member.unit)


def _description(
    campaign: Campaign, records: Sequence[Record], machine: Machine, found: dict[str, str]
) -> dict[str, Any]:
    measured = [record for record in records if record.kind != "calibration"]
    rounds = sorted({record.round for record in measured})
    notes = (
        "Containers (control group, network namespace, veth) on one host. The load generators are third parties on the"
        " same CPUs, placed as under circumstances and accounted per run in runs.csv (generator_percent, 100 = one"
        " CPU). solo is the value of the same round on the same CPUs with the same generator placement. profiles.csv"
        " holds the solo runs on the first place of the first pinning form; metrics.csv holds the metrics of every run."
    )
    return {
        "name": campaign.name,
        "origin": "measured",
        "licence": campaign.licence,
        "machine": f"{machine.model}, {machine.pcpus} CPUs, {machine.memory_mb:.0f} MB",
        "kernel": machine.kernel,
        "date": records[0].started[:10] if records else datetime.now(UTC).date().isoformat(),
        "notes": f"{notes} {campaign.notes}".strip(),
        "circumstances": {
            **found,
            "seconds_per_run": campaign.seconds,
            "warmup_s": campaign.warmup_s,
            "rounds": len(rounds),
            "order": f"every round in a random order of its own, seed {campaign.seed}",
            "runs": len(measured),
            "runs_disturbed": sum(record.disturbed for record in measured),
            "link_mbit": campaign.link_mbit,
            "load_generators": {form.name: _generators(form) for form in campaign.pinnings},
        },
    }


def _generators(form: PinningForm) -> str:
    if form.clients is None:
        return "on the CPUs of their own server"
    return "on CPU " + " and ".join(format_cpus(cpus) for cpus in form.clients)


def _write(path: Path, header: Sequence[str], rows: Iterable[_Row]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    _replace(path, buffer.getvalue())


def _cell(value: object) -> object:
    """Unknown is an empty cell; floats keep six significant digits, more is noise."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
