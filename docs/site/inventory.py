"""The page of the inventory file, field by field, from what the reader takes and the domain's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args

from advisor.inventories import static
from docs.site.tables import made_by, table
from profiler.demand import Demand
from profiler.host_kinds import HOST_KINDS
from profiler.observed import (
    MAX_CPUS,
    MAX_WEIGHT,
    NET_MODES,
    PROBED_VALUES,
    DiskKind,
    Host,
    Instance,
    IsolationSettings,
)

Row = tuple[str, str, str]  # unit or type, what is accepted, meaning

_CPUS = f"1-{MAX_CPUS}"
_MEMORY, _DISK = f"0-{static.MAX_MEMORY_MB:,.0f}", f"0-{static.MAX_DISK_GB:,.0f}"
_RATE, _CACHE = f"0-{static.MAX_NIC_MBIT:,.0f}", f"0-{static.MAX_CACHE_MB:,.0f}"
_NAME = "1-255 letters, digits and `._:-`, not `.` or `..`"

TOP: Mapping[str, Row] = {
    "hosts": ("list", "ids that differ", "the hypervisors; fields below"),
    "instances": ("list", "ids that differ", "virtual machines and containers; fields below"),
    "workloads": ("list", "pairs of name and platform that differ", "how kinds of work behave alone; fields below"),
    "datasets": (
        "list of paths",
        "dataset directories, relative to this file",
        "their profiles are known workloads, too",
    ),
    "observed_at": (
        "time",
        "ISO 8601; UTC where no zone is given",
        "when the hosts were seen; left out = now, and they do not go stale by themselves",
    ),
}
HOST: Mapping[str, Row] = {
    "id": ("name", _NAME, "what other entries and commands call it"),
    "kind": ("choice", ", ".join(HOST_KINDS), "the hypervisor; `lxc` stands for containers of any kind"),
    "pcpus": ("CPUs", _CPUS, "logical CPUs, hyper-threads counted"),
    "memory_mb": ("MB", f"above 0, to {static.MAX_MEMORY_MB:,.0f}", "memory for instances"),
    "threads_per_core": ("threads", "1-16", "hyper-threads that share a core"),
    "cpu_mhz": ("MHz", f"0-{static.MAX_CPU_MHZ:,.0f}", "nominal clock rate; part of the platform"),
    "l2_mb": ("MB", _CACHE, "second-level cache"),
    "l3_mb": ("MB", _CACHE, "last-level cache of the whole host"),
    "nic_mbit": ("Mbit/s", _RATE, "rate of the link that instances share"),
    "disk_gb": ("GB", _DISK, "disk for instances; left out = not checked"),
    "disk_kind": ("choice", ", ".join(kind or "(empty)" for kind in get_args(DiskKind)), "what the disk is"),
    "disk_mb_s": ("MB/s", f"0-{static.MAX_MB_S:,.0f}", "what the disk was measured to do for all instances together"),
    "mem_bw_mb_s": (
        "MB/s",
        f"0-{static.MAX_MB_S:,.0f}",
        "what the memory was measured to do for all instances together",
    ),
    "numa": ("list of CPU lists", "CPUs of the host", "the CPUs of each NUMA node; left out = one node"),
    "siblings": (
        "list of CPU lists",
        "CPUs of the host",
        "the CPUs of each core with several, such as `[0-1, 2-3]`; left out = `threads_per_core` as Linux numbers them "
        "on most servers",
    ),
    "driver_cpus": (
        "CPU list",
        "CPUs of the host",
        "where the driver domain (Dom0, vhost threads) runs; left out = anywhere",
    ),
    "cpu_ids": (
        "CPU list",
        "as many CPUs as `pcpus`",
        "the numbers of its CPUs where they have gaps, as with siblings switched off: `0,2,4-31`; left out = from 0 on",
    ),
    "isolated_cpus": (
        "CPU list",
        "CPUs of the host",
        "CPUs on which only pinned work runs (`isolcpus`); left out = none",
    ),
    "dedicated_cpus": (
        "CPU list",
        "CPUs of the host",
        "CPUs that serve dedicated vCPUs only, one each (Nova's `cpu_dedicated_set`); left out = none",
    ),
    "labels": (
        "mapping of texts",
        "labels that are rendered into commands are checked",
        "free; some name bridges, domains or racks",
    ),
    "enabled": ("yes or no", "true, false", "whether new instances may go there"),
    "cpu_overcommit": ("ratio", "0.01-1000", "vCPUs that may be promised for each CPU"),
    "memory_overcommit": ("ratio", "0.01-1000", "memory that may be promised for each MB"),
    "driver_overcommit": (
        "ratio",
        "0.01-1000",
        "work that may be asked of the driver domain over what its CPUs can do",
    ),
    "driver_weight": ("whole number", "1-65535", "scheduler weight of Xen's Dom0, which xl leaves at 256"),
    "platform": (
        "name",
        "a platform of a dataset",
        "the measured platform it is like; left out = its own numbers only",
    ),
    "own_cpus": (
        "CPUs",
        "0-4096",
        "what its own work (network, storage, databases) uses outside of instances; what its agent measures goes first",
    ),
    "second_thread": (
        "ratio",
        "0-1",
        "what a second hyperthread adds to the work of a core; left out = as its platform, else 0.25",
    ),
    "turbo_mhz": (
        "MHz",
        f"0-{static.MAX_CPU_MHZ:,.0f}",
        "highest clock rate of a core; predictions count with it where `cpu_mhz` is known, too",
    ),
    "disk_iops": (
        "1/s",
        f"0-{static.MAX_IOPS:,.0f}",
        "requests per second that the disk serves for all instances; left out = as its platform, else no limit",
    ),
    "probed": (
        "mapping of numbers",
        ", ".join(f"`{name}`" for name in PROBED_VALUES),
        "what probes found on it; a service takes it from `cotenant-profiler probe --push` only",
    ),
}
INSTANCE: Mapping[str, Row] = {
    "id": ("name", _NAME, "what other entries and commands call it"),
    "host": ("name", "the id of a host in this file", "where it is; left out = it has no host yet"),
    "vcpus": ("CPUs", _CPUS, "virtual CPUs"),
    "memory_mb": ("MB", _MEMORY, "memory"),
    "disk_gb": ("GB", _DISK, "disk"),
    "workload": ("name", "a workload of this file, its datasets or the service", "what it runs; left out = not known"),
    "load": ("ratio", "above 0, to 10", "offered load over what it can do alone"),
    "pinning": (
        "text",
        "`VCPU:CPUS` per vCPU, as <code>0:2&#124;1:3-4</code>",
        "which CPUs each vCPU may use; left out = any",
    ),
    "cap_percent": ("% of one CPU", "above 0, to 1,000,000", "upper limit of its CPU time; left out = none"),
    "weight": ("weight", f"1-{MAX_WEIGHT}", "share under contention, on Xen's scale, where the default is 256"),
    "network": (
        "mapping",
        f"`mode` ({', '.join(NET_MODES)}), `rate_mbit`, `ceil_mbit`",
        "its traffic class; left out = none",
    ),
    "disk_limit_mb_s": ("MB/s", "above 0, to 1,000,000", "upper limit of its disk traffic; left out = none"),
    "service": ("choice", ", ".join(static.SERVICES), "what it is sensitive to"),
    "min_throughput_ratio": (
        "ratio",
        "above 0, to 1",
        "the share of its speed alone that it must keep; left out = any",
    ),
    "max_latency_ratio": (
        "ratio",
        "1-1,000,000",
        "how many times as long as alone it may take to answer; left out = any",
    ),
    "max_time_short": (
        "part of the time",
        "0, to below 1",
        "the largest part of the time for which it may be contended, 0.01 = 1 %; left out = any",
    ),
    "exclusive": ("yes or no", "true, false", "whether it must have its host to itself"),
    "dedicated_vcpus": (
        "whole number",
        "0 to its vCPUs",
        "how many of its vCPUs have a CPU each that no other instance uses; which ones is assumed, unless it is pinned",
    ),
    "labels": (
        "mapping of texts",
        "as of a host",
        "free; some are [rules](planning.md#rules-that-stay-with-an-instance): `anti_affinity`, `affinity`, "
        "`require.NAME`, `needs.NAME`, `never_move`, `move_window` and more; some name taps or interfaces",
    ),
    "demand": (
        "mapping",
        "`cpu` (CPUs), `net_mbit`, `disk_mb_s`, `mem_bw_mb_s`: a mean, or a mapping with the fields below",
        "what it would use if nothing held it back; left out = as instances of its size",
    ),
    "cpu_percent": (
        "% of one CPU",
        f"0-{100 * MAX_CPUS:,}; instead of `demand.cpu`",
        "its mean demand as monitoring reports it, 100 = one whole CPU",
    ),
    "net_mbit": ("Mbit/s", f"{_RATE}; instead of `demand.net_mbit`", "its mean traffic, both directions"),
    "disk_mb_s": ("MB/s", f"0-{static.MAX_MB_S:,.0f}; instead of `demand.disk_mb_s`", "its mean disk throughput"),
    "mem_bw_mb_s": ("MB/s", f"0-{static.MAX_MB_S:,.0f}; instead of `demand.mem_bw_mb_s`", "its mean memory traffic"),
}
_MOST = "as the resource; not above what follows"
DEMAND: Mapping[str, Row] = {
    "mean": ("the resource's", "cpu: not above `vcpus`", "mean over time"),
    "spread": ("the resource's", "as the resource", "standard deviation between windows; 0 = not known"),
    "p50": ("the resource's", _MOST, "the demand that half of the windows stay below"),
    "p95": ("the resource's", _MOST, "the demand that 95 % of the windows stay below"),
    "p99": ("the resource's", "as the resource", "the demand that 99 % of the windows stay below"),
    "window_s": ("s", "above 0, to 1,000,000", "length of the windows that these are of"),
    "autocorrelation_s": ("s", "0-1,000,000,000", "how long a window resembles the next ones"),
    "hours": ("list of ratios", "24 or 168 numbers, 0-168", "mean of each hour (UTC; of the day or the week) over all"),
    "common": ("ratio", "0-1", "share of its variance that all instances have in common"),
    "open_loop": ("ratio", "0-1", "share of its work that arrives whatever the service is"),
    "burst_ms": ("ms", "0-1,000,000,000", "mean CPU time of one burst"),
}
WORKLOAD: Mapping[str, Row] = {
    "name": ("name", "up to 255 characters, no `/`", "what instances call it"),
    "platform": ("name", "", "where it was measured; left out = it holds everywhere"),
    "metrics": (
        "mapping of numbers",
        "0-1,000,000,000,000,000 each; names as in [the metrics](metrics.md)",
        "how it behaves alone at load 1",
    ),
    "origin": ("choice", ", ".join(static.ORIGINS), "where the numbers come from"),
}
EXAMPLE = """\
hosts:
  - {id: kvm01, kind: kvm, pcpus: 64, memory_mb: 524288, cpu_overcommit: 2.0, numa: ["0-31", "32-63"], nic_mbit: 25000}
  - {id: kvm02, kind: kvm, pcpus: 64, memory_mb: 524288, cpu_overcommit: 2.0}
instances:
  - {id: web-1, host: kvm01, vcpus: 4, memory_mb: 8192, workload: web, service: latency, max_latency_ratio: 2}
  - {id: batch-1, host: kvm01, vcpus: 8, memory_mb: 16384, cap_percent: 400, cpu_percent: 310}
  - {id: web-2, vcpus: 4, memory_mb: 8192, workload: web}
workloads:
  - {name: web, metrics: {cpu: 62, pages_exchanged: 5200, net_mbit: 160}}
"""


def page() -> str:
    """The whole page."""
    parts = [
        "# The inventory file\n",
        made_by("`docs/site/inventory.py`"),
        "An inventory is one YAML or JSON file. It lists the hosts, the instances, and what is known of their\n"
        "work. `cotenant where`, `plan` and `probe-plan` read it. `cotenant sync FILE` brings it into the database.\n"
        "Sizes alone are enough to begin. An unknown field, a wrong type and a number outside its limits are refused\n"
        "with file, line and field, and nothing is stored. With `cotenant sync FILE --merge` only the host, instance,\n"
        "workload or dataset with the mistake is left out, what is stored of it stays, and the exit code is 1. Of a\n"
        "pin to a CPU that its host lacks `cotenant sync FILE` says so, and takes all else; other commands refuse it.\n"
        "A file may have up to 16 MiB, without YAML anchors, aliases and tags.\n",
        f"```yaml\n{EXAMPLE}```\n",
        "## The file\n",
        _table(TOP, {}, ()),
        "\n## A host\n",
        _table(HOST, _defaults(Host), ("id", *static.NEEDED)),
        "\n## An instance\n",
        _table(INSTANCE, {**_defaults(Instance), **_defaults(IsolationSettings)}, ("id",)),
        "\n## A demand\n",
        "`demand: {cpu: 0.4}` is a mean demand of 0.4 CPUs, and `{mean: 0.4, p95: 0.9}` also\n"
        "how much at busy times. `cpu_percent: 40` is the same as `demand: {cpu: 0.4}`. What is left out is taken\n"
        "from public traces of virtual machines, and the demand stays more doubtful than one that was measured.\n",
        "Where the service measures an instance itself ([demand over time](profiler.md#demand-over-time)), a demand\n"
        "from this file still counts for more. Leave it out, and `load` at 1, to let the measured one count.\n",
        _table(DEMAND, _defaults(Demand), ("mean",)),
        "\n## A workload\n",
        _table(WORKLOAD, {"platform": "", "origin": "given"}, ("name", "metrics")),
        "\n**Next:** [ask where an instance should go](tour.md#where-should-it-go).",
    ]
    return "\n".join(parts) + "\n"


def _table(rows: Mapping[str, Row], defaults: Mapping[str, Any], needed: tuple[str, ...]) -> str:
    cells = [
        (f"`{name}`", unit, "**required**" if name in needed else _shown(defaults.get(name)), accepted, meaning)
        for name, (unit, accepted, meaning) in rows.items()
    ]
    return table(("field", "unit or type", "default", "accepted", "is"), cells).strip("\n")


def _defaults(kind: type) -> Mapping[str, Any]:
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value in (None, "", ()) else f"{value}"
