"""Proxmox VE as a source: which calls a read is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from advisor.inventories.calls import CallError, failed_part
from advisor.inventories.reading import Facts, Part, Reading, clean_labels, taken
from cotenant_proxmox import cpus
from cotenant_proxmox.calls import ProxmoxApi, account
from cotenant_proxmox.facts import (
    OWN_LABELS,
    RULE_LABELS,
    STORAGE,
    Row,
    guest_id,
    host_facts,
    instance_facts,
    local_storages,
    node_name,
    rule_labels,
    shared_storages,
)

HA_RULES = "/cluster/ha/rules"
NO_SUCH_CALL = (404, 501)
AT_ONCE = 8  # calls; pveproxy has three workers for each node as it is installed


class Proxmox:
    """Reads nodes and guests each time, and the config of a guest when its row changed or a read is whole."""

    def __init__(
        self,
        cloud: str | None = None,
        ca_file: Path | None = None,
        fingerprint: str | None = None,
        *,
        open_api: Callable[[], ProxmoxApi] | None = None,
        whole_every: int = 10,
    ) -> None:
        self.name = f"proxmox:{cloud}" if cloud else "proxmox"
        self._prefix = f"{cloud}:" if cloud else ""  # numbers of guests are unique in one cluster only
        self._open = open_api or (lambda: ProxmoxApi(account(cloud, ca_file, fingerprint)))
        self._whole_every = whole_every
        self._reads = 0
        self._rules: dict[str, dict[str, str]] = {}  # labels by guest
        self._cpus = cpus.Nodes()
        self._has_rules = False  # whether such rules were ever seen; else such labels are an operator's
        self._configs: dict[str, tuple[tuple[object, ...], Row]] = {}  # by path: what its row said, and the config

    def read(self) -> Reading:
        """Read what may be read; a guest whose config cannot be read stays as it is."""
        try:
            api = self._open()
            rows = resources(api)
        except ValueError as error:
            return Reading(self.name, (Part("connection", "failed", reason=str(error)),))
        except CallError as error:
            return Reading(self.name, (failed_part("resources", error),))
        if self._reads % self._whole_every == 0:
            self._configs.clear()
        self._reads += 1
        left_out: list[str] = []
        parts = [Part("resources", "read", len(rows))]
        self._rules = self._ha_rules(api, parts)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="proxmox") as pool:
            hosts = self._hosts(api, pool, rows, parts, left_out)
            instances, unclear = self._guests(api, pool, rows, parts, left_out)
        return Reading(
            source=self.name,
            parts=tuple(parts),
            hosts=tuple(hosts),
            instances=tuple(instances),
            every_host=len(hosts) == sum(row.get("type") == "node" for row in rows),
            every_instance=True,
            unclear=unclear,
            own_labels=OWN_LABELS | cpus.LABELS | (RULE_LABELS if self._has_rules else frozenset()),
            left_out=tuple(left_out),
        )

    def _ha_rules(self, api: ProxmoxApi, parts: list[Part]) -> dict[str, dict[str, str]]:
        """Labels by guest of the HA rules, those known before where they cannot be read; before version 9 there is
        no such call, and no rule."""
        try:
            answer = api.get(HA_RULES)
        except CallError as error:
            if error.status in NO_SUCH_CALL:
                return {}
            parts.append(failed_part("HA rules", error))
            return self._rules
        rules = [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []
        self._has_rules |= bool(rules)
        parts.append(Part("HA rules", "read", len(rules)))
        return rule_labels(rules, self._prefix)

    def _hosts(
        self, api: ProxmoxApi, pool: ThreadPoolExecutor, rows: list[Row], parts: list[Part], left_out: list[str]
    ) -> list[Facts]:
        named = _named([row for row in rows if row.get("type") == "node"], node_name, left_out)
        online = [name for name, row in named.items() if row.get("status") == "online"]
        statuses, failed = _asked(api, pool, {name: f"/nodes/{name}/status" for name in online})
        parts.append(_part("nodes", len(statuses), failed))
        for name, status in statuses.items():
            self._cpus.add(name, status)
        hosts = taken(
            named,
            lambda name, row: host_facts(row, statuses.get(name, {}), self._prefix + name, self.name),
            left_out,
            lambda name, _: f"node {name}",
        )
        shared = shared_storages(rows)
        reach = {name: {f"{STORAGE}{one}": "true" for one in shared if name in shared[one]} for name in hosts}
        return [{**facts, "labels": facts["labels"] | clean_labels(reach[name])} for name, facts in hosts.items()]

    def _guests(
        self, api: ProxmoxApi, pool: ThreadPoolExecutor, rows: list[Row], parts: list[Part], left_out: list[str]
    ) -> tuple[list[Facts], frozenset[str]]:
        """Facts of guests, and ids of those that are there and could not be read. Templates never run."""
        local, partly = local_storages(rows), shared_storages(rows)
        nodes = {str(row.get("node")): row for row in rows if row.get("type") == "node"}
        offline = {str(row.get("node")) for row in rows if row.get("type") == "node" and row.get("status") != "online"}
        guests = [row for row in rows if row.get("type") in ("qemu", "lxc") and not row.get("template")]
        named = _named(guests, lambda row: str(guest_id(row)[1]), left_out)
        paths: dict[str, str] = {}
        for number, row in named.items():
            if str(row.get("node")) in offline:  # which cannot be asked, and where nothing has changed
                continue
            try:
                paths[number] = f"/nodes/{node_name(row)}/{guest_id(row)[0]}/{number}/config"
            except ValueError as error:
                left_out.append(f"guest {number}: {error}"[:300])
        known = {number: self._configs.get(path) for number, path in paths.items()}
        marks = {number: _mark(named[number]) for number in paths}
        configs = {number: cached[1] for number, cached in known.items() if cached and cached[0] == marks[number]}
        fresh, failed = _asked(api, pool, {number: path for number, path in paths.items() if number not in configs})
        configs |= fresh
        self._configs = {paths[number]: (marks[number], config) for number, config in configs.items()}
        parts.append(_part("guests", len(configs), failed))

        def facts(number: str, config: Row) -> Facts:
            row = named[number]
            on = node_name(row)
            return instance_facts(
                row,
                config,
                self._prefix + number,
                self._prefix + on,
                self.name,
                node=nodes.get(on, {}),
                local=local,
                partly=partly,
                rules={**self._rules.get(number, {}), **self._cpus.rule(config.get("cpu"), on)},
            )

        instances = taken(configs, facts, left_out, lambda number, _: f"guest {number}")
        return list(instances.values()), frozenset(self._prefix + number for number in named.keys() - instances.keys())


def resources(api: ProxmoxApi) -> list[Row]:
    """Nodes, guests and what else the cluster lists; CallError where it does not."""
    rows = api.get("/cluster/resources")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CallError("/cluster/resources: no list of resources")
    return rows


def _named(rows: list[Row], name: Callable[[Row], str], left_out: list[str]) -> dict[str, Row]:
    named: dict[str, Row] = {}
    for row in rows:
        try:
            named[name(row)] = row
        except ValueError as error:
            left_out.append(str(error))
    return named


def _mark(row: Row) -> tuple[object, ...]:
    """What changes in the row of a guest when its size, name or place changes."""
    return tuple(str(row.get(name)) for name in ("node", "name", "maxcpu", "maxmem", "maxdisk", "status", "tags"))


def _asked(
    api: ProxmoxApi, pool: ThreadPoolExecutor, paths: Mapping[str, str]
) -> tuple[dict[str, Row], list[CallError]]:
    """The answers by name, and why there are not all."""

    def ask(path: str) -> Row | CallError:
        try:
            answer = api.get(path)
        except CallError as error:
            return error
        return answer if isinstance(answer, dict) else CallError(f"{path}: no object")

    answers = dict(zip(paths, pool.map(ask, paths.values()), strict=True))
    answered = {name: answer for name, answer in answers.items() if not isinstance(answer, CallError)}
    return answered, [answer for answer in answers.values() if isinstance(answer, CallError)]


def _part(name: str, rows: int, failed: list[CallError]) -> Part:
    if not failed:
        return Part(name, "read", rows)
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    part = failed_part(name, failed[0])
    return Part(name, part.state, rows, part.reason + more)
