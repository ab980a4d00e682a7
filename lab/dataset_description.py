"""Writes dataset.yaml: the name and origin of a dataset, the machine, and the environment of the measurement."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lab.campaign import Campaign, PinningForm
from lab.records import Record
from profiler.backends.host_description import HostDescription
from profiler.observed import format_cpus

_INSTANCES = {
    "container": "Containers (control group, network namespace, veth)",
    "native": "Programs on the host itself, without groups of limits or namespaces of their own",
    "qemu": "Whole VMs (QEMU, virtio through taps)",
    "xen": "Xen domains",
}
_NOTES = (
    " on one host. The load generators are third parties on the same CPUs, placed as under circumstances and accounted"
    " per run in runs.csv (generator_percent, 100 = one CPU). solo is the value of the same round on the same CPUs with"
    " the same generator placement. profiles.csv holds the solo runs on the first place of the first pinning form;"
    " metrics.csv.gz holds the metrics of every run, outcomes.csv everything that its workloads reported, "
    "series.csv.gz its windows (at_s is the end of a window, in seconds after the measured time began; warm-up below "
    "0). Runs that were disturbed from outside, or whose windows drifted (unsteady), are marked in runs.csv and "
    "kept. cpu_speed there is the speed of an instance's CPUs during the run, in iterations of fixed work per µs of "
    "CPU time: what a hypervisor's steal does not tell. It is empty where the run was measured before that was watched."
)

_ON_OFF = (
    " Groups were measured on/off: their members were frozen and thawed in balanced random order within a run, and each"
    " state is a co-location (RUN/1+3 is that in which the first and third members of RUN worked). Its solo is from the"
    " same run, and ratio_se is the standard error of colocated / solo. Both are rates at the full speed of CPUs. In"
    " series.csv.gz progress is the rate in each state of a run, works who worked, disturbed what was left out, speed"
    " that of the CPUs."
)
_EMULATED = "Xen domains on an EMULATED machine (QEMU without hardware virtualisation)"
_EMULATED_NOTES = (
    ": times, pages, events and switches cost there what the emulator makes of them, so no value is that of a real"
    " machine; every row's platform says so. Clients run outside of the machine (generator_percent in runs.csv is their"
    " CPU time). profiles.csv holds the solo runs on the first place of the first pinning form; metrics.csv.gz holds"
    " the metrics with all members at work. Of cpu the unit is not sysbench's event, but 1,000 turns of a loop."
)


def describe_dataset(
    campaign: Campaign, records: Sequence[Record], machine: HostDescription, circumstances: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of dataset.yaml; `circumstances` are those that the host showed."""
    measured = [record for record in records if record.kind != "calibration"]
    kind = _INSTANCES.get(campaign.instances, campaign.instances) if campaign.emulated is None else _EMULATED
    return {
        "name": campaign.name,
        "origin": "measured",
        "licence": campaign.licence,
        "learn": campaign.learn and not campaign.hidden,
        **({"hidden": True} if campaign.hidden else {}),  # kept to judge
        "solo": "own settings",  # the base case keeps an instance's cap, rate and disk limit
        **({} if campaign.emulated is None else {"generators": "outside"}),  # of the measured host's CPUs
        "machine": f"{machine.labels.get('cpu_model', platform.machine())}, {machine.pcpus} CPUs,"
        f" {machine.memory_mb or 0:.0f} MB",
        "kernel": f"Linux {machine.labels.get('kernel', platform.release())}",
        "date": records[0].started[:10] if records else datetime.now(UTC).date().isoformat(),
        "notes": f"{kind}{_notes(campaign)} {campaign.notes}".strip(),
        "circumstances": {
            **circumstances,
            "instances": campaign.instances,
            "seconds_per_run": campaign.seconds,
            "warmup_s": campaign.warmup_s,
            "warmup_most_s": campaign.warmup_most_s,
            **_repeats(campaign),
            **_on_off(campaign),
            "rounds": len({record.round for record in measured}),
            "order": f"every round in a random order of its own, seed {campaign.seed}",
            "runs": len(measured),
            "runs_disturbed": sum(record.disturbed for record in measured),
            "runs_unsteady": sum(bool(record.unsteady) for record in measured),
            "link_mbit": campaign.link_mbit,
            "line_mbit": campaign.line_mbit,
            **({"routers": campaign.routers} if campaign.routers else {}),
            **_host_limits(campaign),
            "load_generators": {form.name: _generators(form) for form in campaign.pinnings},
        },
    }


def _notes(campaign: Campaign) -> str:
    usual = _NOTES if campaign.emulated is None else _EMULATED_NOTES
    return f"{usual}{_ON_OFF if campaign.on_off else ''}"


def _repeats(campaign: Campaign) -> dict[str, Any]:
    """What decided how often was measured."""
    if campaign.temporal is not None:
        return {"time_grid": f"a round every {campaign.temporal.every_min:g} min for {campaign.temporal.hours:g} h"}
    repeats = campaign.repeats
    if repeats.narrow is None:
        return {}
    return {
        "repeats": f"at least {repeats.least} rounds, up to {repeats.most} of what had a 95 % interval of T/B wider"
        f" than +-{100 * repeats.narrow:g} % of its median"
    }


def _host_limits(campaign: Campaign) -> dict[str, Any]:
    """What all instances share and others of this host do not, where there is such a thing."""
    volume, limits = campaign.volume, {"host_cap_percent": campaign.host_cap_percent}
    if volume is not None:
        limits |= {"volume_mb_s": volume.mb_s, "volume_requests_s": volume.requests_s}
    return {name: value for name, value in limits.items() if value is not None}


def _on_off(campaign: Campaign) -> dict[str, Any]:
    on_off = campaign.on_off
    if on_off is None:
        return {}
    tuned = f"found for each workload beside {on_off.beside}, see outcomes.csv, runs tuning:"
    lengths = tuned if on_off.tunes else f"{on_off.dwell_ms} ms, {on_off.guard_ms} ms of which do not count"
    filled = "; CPUs without work were kept busy by a program of the lowest priority"
    busy = filled if on_off.fill_idle else ""
    return {"on_off": f"each state for {campaign.seconds} s or longer, in windows of a length that is {lengths}{busy}"}


def _generators(form: PinningForm) -> str:
    if form.clients is None:
        return "on the CPUs of their own server"
    return "on CPU " + " and ".join(format_cpus(cpus) for cpus in form.clients)
