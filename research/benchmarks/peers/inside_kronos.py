"""Runs in the environment of Kronos: its engine on a cloud that standard input describes; prints the moves.

Usage: python inside_kronos.py < QUESTION.json. The question: `hosts` with `name`, `vcpus` and `memory_mb` that they may
promise, `cpus` and `whole_memory_mb`; `vms` with `name`, `host`, `vcpus`, `memory_mb` and `cpu`, the CPUs in use;
`groups` with `policy` and `members`; `mode`, spread or pack; `cycles` at most. Only the clients of Nova, Placement
and Prometheus are replaced, as `kronos-replay` replaces them; each cycle begins where the last one ended.
"""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

from kronos.clients.nova import ComputeService, Instance
from kronos.clients.placement import ProviderSnapshot, ResourceInventory
from kronos.clients.prometheus import PrometheusHealth, QueryResult
from kronos.common.config import register_opts
from kronos.engine.cooldown import CooldownTracker
from kronos.engine.loop import EngineLoop
from kronos.policies.models import PoliciesConfig
from oslo_config import cfg
from oslo_log import log

AGGREGATE, ZONE = "all", "nova"
MOST_IN_A_CYCLE = 100  # the most that a policy may allow
COOLDOWN_S = 900.0  # of an instance: Kronos' default


class Described:
    """Nova, Placement and Prometheus as one: what the question says, with all moves so far."""

    def __init__(self, question: dict[str, Any]) -> None:
        self.hosts = {one["name"]: one for one in question["hosts"]}
        self.vms = {one["name"]: one for one in question["vms"]}
        self.groups: list[dict[str, Any]] = question["groups"]

    def get_hosts_in_aggregate(self, _: object) -> list[str]:
        return list(self.hosts)

    def list_instances_on_host(self, host: str) -> list[Instance]:
        groups = {name: group["id"] for group in self.groups for name in group["members"]}
        return [
            Instance(
                uuid=one["name"], name=one["name"], internal_name=one["name"], host=host, flavor_vcpus=one["vcpus"],
                flavor_ram_mb=one["memory_mb"], status="ACTIVE",
                server_groups=[groups[one["name"]]] if one["name"] in groups else [],
            )
            for one in self.vms.values()
            if one["host"] == host
        ]  # fmt: skip

    def list_server_groups(self) -> list[dict[str, Any]]:
        return self.groups

    def list_compute_services(self) -> list[ComputeService]:
        return [
            ComputeService(
                host=name, binary="nova-compute", state="up", status="enabled", zone=ZONE, disabled_reason="",
                forced_down=False,
            )
            for name in self.hosts
        ]  # fmt: skip

    def fetch_snapshots(self) -> dict[str, ProviderSnapshot]:
        found = {}
        for name, host in self.hosts.items():
            mine = [one for one in self.vms.values() if one["host"] == name]
            promised = {"VCPU": host["vcpus"], "MEMORY_MB": host["memory_mb"]}
            used = {"VCPU": sum(one["vcpus"] for one in mine), "MEMORY_MB": sum(one["memory_mb"] for one in mine)}
            inventories = {what: ResourceInventory(int(most), 0, 1.0) for what, most in promised.items()}
            found[name] = ProviderSnapshot(name, inventories, used)
        return found

    def instant_query(self, query: str, **_: object) -> QueryResult:
        of, what = query.split(":")
        amount, whole = ("cpu", "cpus") if what == "cpu" else ("memory_mb", "whole_memory_mb")
        part = {name: one[amount] / self.hosts[one["host"]][whole] for name, one in self.vms.items()}
        if of == "host":
            sums = dict.fromkeys(self.hosts, 0.0)
            for name, one in self.vms.items():
                sums[one["host"]] += part[name]
            part = {name: min(value, 1.0) for name, value in sums.items()}
        return QueryResult(
            query=query, timestamp=datetime.now(tz=UTC), health=PrometheusHealth.HEALTHY, series=part,
            missing_labels=set(), warnings=[],
        )  # fmt: skip


def policies(mode: str) -> PoliciesConfig:
    """CPU in use alone, or to pack CPU and memory; all else as Kronos has it."""
    measures = {"cpu": 1.0} if mode == "spread" else {"cpu": 0.5, "memory": 0.5}
    return PoliciesConfig.model_validate(
        {
            "policies": [
                {
                    "name": what, "mode": mode, "weight": weight, "imbalance_query": f"host:{what}",
                    "vm_profile_query": f"vm:{what}", "capacity_query": f"host:{what}",
                    "vm_profile_label_type": "nova_instance_uuid", "max_migrations_per_cycle": MOST_IN_A_CYCLE,
                }
                for what, weight in measures.items()
            ]
        }
    )  # fmt: skip


def main() -> None:
    """Print `moves` in their order and the CPU seconds of all cycles."""
    question = json.load(sys.stdin)
    conf = cfg.CONF
    log.register_options(conf)
    register_opts(conf)
    conf([], project="kronos", default_config_files=[])
    conf.set_override("availability_zone", ZONE, group="engine")
    cloud, moves = Described(question), []
    engine = EngineLoop(conf, nova=cloud, prometheus=cloud, placement=cloud, cooldown=CooldownTracker(0.0, COOLDOWN_S))
    first, chosen = time.process_time(), policies(question["mode"])
    for _ in range(question["cycles"]):
        report = engine.run_once(policies=chosen, aggregates=[AGGREGATE])
        if report.errors:
            sys.exit("; ".join(report.errors))
        plans = [one.migration_plan for one in report.aggregate_results if one.migration_plan is not None]
        steps = [step for plan in plans for step in plan.steps]
        if not steps:
            break
        for step in steps:
            cloud.vms[step.instance_uuid]["host"] = step.to_host
            moves.append((step.instance_uuid, step.to_host))
    json.dump({"stages": [[move] for move in moves], "cpu_seconds": time.process_time() - first}, sys.stdout)


main()
