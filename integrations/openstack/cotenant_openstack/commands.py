"""Settings → `openstack` commands: extra specs of the instance's flavor, and a Neutron QoS policy on its port.

Syntax by Nova's resource-limits.rst, cpu-topologies.rst and validators, Neutron's config-qos.rst and
python-openstackclient's network_qos_rule.py and server.py (server migrate); checked against those texts only, not run
against a cloud.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.domain import Command
from advisor.render.change import (
    Phase,
    Policed,
    RenderOptions,
    SettingsChange,
    Step,
    backwards,
    by_version,
    bytes_per_second,
    loosens,
    more,
    only_said,
    period_and_quota,
    policed,
    quota_note,
    weight_note,
)
from advisor.render.names import FLAVOR, POLICY, PORT, cloud_name, not_an_option
from profiler.observed import Host, Instance, NetworkSettings, Pinning

TOOL = "openstack"
PINS_TRAVEL = False  # they are the flavor's, and Nova chooses the CPUs on each host
# Nova lets a live migration name its host, and have the scheduler check it, since this version (Nova's REST history).
LIVE_TO_HOST = "2.30"
_FROM_NOW_ON = "holds for every server of the flavor from its next start with it (create or resize)"


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """What the flavor can say of a change, but the network; see `Phase` for the order."""
    flavor = cloud_name(change.instance, FLAVOR)
    if flavor is None or change.host.kind != "kvm":
        if any(change.differs(setting) for setting in ("pinning", "weight", "cap_percent", "disk_limit_mb_s")):
            if change.host.kind != "kvm":
                why, lacks = f"Nova's quotas hold under libvirt and KVM, not on host {change.host.id}", ""
            else:
                lacks = f"label {FLAVOR} on instance {change.instance.id}"
                why = f"needs {lacks} (one of its own)"
            yield only_said(TOOL, f"CPU and disk are limited by the flavor: {why}", needs=lacks)
    else:
        yield from _pin(change, flavor)
        yield from _weight(change, flavor, options)
        yield from _cap(change, flavor)
        yield from _disk(change, flavor)


def network(change: SettingsChange) -> Iterator[Step]:
    """The limit on what the server sends: at its port where that is named, else by its flavor."""
    port = cloud_name(change.instance, PORT)
    if port is not None:
        yield from _port_network(change, port)
    else:
        yield from _flavor_network(change, cloud_name(change.instance, FLAVOR))


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a server to a named host."""
    server = not_an_option(instance.id, "instance", TOOL)
    start = (TOOL, "--os-compute-api-version", LIVE_TO_HOST, "server", "migrate", "--live-migration")
    argv, undo = (
        (*start, "--host", not_an_option(host.id, "host", TOOL), "--wait", server) for host in (target, source)
    )
    return Command(TOOL, argv, undo, "the scheduler checks the host")


def set_vcpus(host: Host, former: Instance, then: Instance) -> Command:
    """Said: a size is a flavor."""
    del host, former
    size = f"{then.vcpus} vCPU{'s' if then.vcpus > 1 else ''}"
    text = f"give {then.id} a flavor of {size} ({TOOL} server resize --flavor); which one is not known here"
    return Command(TOOL, (), (), text)


def _specs(
    flavor: str, now: Mapping[str, object], then: Mapping[str, object], phase: Phase, note: str
) -> Iterator[Step]:
    """From one set of extra specs to another; either holds all of the keys or none."""
    if now != then:
        note = f"{_FROM_NOW_ON}; {note}" if note else _FROM_NOW_ON
        yield Step(phase, Command(TOOL, _spec(flavor, now, then), _spec(flavor, then, now), note))


def _spec(flavor: str, now: Mapping[str, object], then: Mapping[str, object]) -> tuple[str, ...]:
    verb, texts = ("set", [f"{key}={value}" for key, value in then.items()]) if then else ("unset", list(now))
    return (TOOL, "flavor", verb, *(part for text in texts for part in ("--property", text)), flavor)


def _pin(change: SettingsChange, flavor: str) -> Iterator[Step]:
    desired = change.desired.pinning
    if desired is None:
        return
    if change.pinned(desired) and not _dedicated(change, desired):
        yield only_said(TOOL, f"Nova gives a vCPU one pCPU of its own or any: it cannot keep to {desired}")
        return
    now, then = (_cpu_policy(change, settings.pinning) for settings in (change.current, change.desired))
    note = "Nova chooses which pCPUs; emulator threads need [compute] cpu_shared_set" if then else ""
    yield from _specs(flavor, now, then, Phase.PIN, note)


def _dedicated(change: SettingsChange, pinning: Pinning | None) -> bool:
    """Whether each vCPU has exactly one pCPU, and has it for itself."""
    if pinning is None or len(pinning.cpus) != change.instance.vcpus:
        return False
    return all(len(cpus) == 1 for cpus in pinning.cpus) and len(pinning.union) == change.instance.vcpus


def _cpu_policy(change: SettingsChange, pinning: Pinning | None) -> dict[str, object]:
    if not _dedicated(change, pinning):
        return {}
    specs: dict[str, object] = {"hw:cpu_policy": "dedicated"}
    if change.host.driver_cpus:
        specs["hw:emulator_threads_policy"] = "share"
    if change.host.threads_per_core == 1:
        # `isolate` asks for hosts without SMT, as the one that this was predicted for (cpu-topologies.rst)
        specs["hw:cpu_thread_policy"] = "isolate"
    return specs


def _weight(change: SettingsChange, flavor: str, options: RenderOptions) -> Iterator[Step]:
    pair = change.weights(by_version(options))
    if pair is None:
        return
    now = {} if change.current.weight is None else {"quota:cpu_shares": pair[0]}
    if now or pair[0] != pair[1]:
        phase = Phase.LOOSEN if pair[1] > pair[0] else Phase.TIGHTEN
        yield from _specs(
            flavor, now, {"quota:cpu_shares": pair[1]}, phase, weight_note(change.desired.weight, options)
        )


def _cap(change: SettingsChange, flavor: str) -> Iterator[Step]:
    now, then = change.current.cap_percent, change.desired.cap_percent
    if then is None:
        return
    cpus = then / 100 / change.instance.vcpus
    phase = Phase.LOOSEN if more(now, then) else Phase.TIGHTEN
    yield from _specs(flavor, _quota(change, now), _quota(change, then), phase, quota_note(cpus, change.instance))


def _quota(change: SettingsChange, percent: float | None) -> dict[str, object]:
    """Each vCPU may use quota of period, µs (resource-limits.rst)."""
    if percent is None:
        return {}
    period, quota = period_and_quota(percent / 100 / change.instance.vcpus, change.instance)
    return {"quota:cpu_period": period, "quota:cpu_quota": quota}


def _disk(change: SettingsChange, flavor: str) -> Iterator[Step]:
    now, then = (bytes_per_second(s.disk_limit_mb_s) for s in (change.current, change.desired))
    if then is None:
        return
    key = "quota:disk_total_bytes_sec"
    phase = Phase.LOOSEN if more(now, then) else Phase.TIGHTEN
    yield from _specs(flavor, {} if now is None else {key: now}, {key: then}, phase, "each disk by itself")


def _flavor_network(change: SettingsChange, flavor: str | None) -> Iterator[Step]:
    if change.desired.network is None or change.desired.network == change.current.network:
        return
    now, then = policed(change.current.network), policed(change.desired.network)
    if flavor is None or change.host.kind != "kvm":
        lacks = f"label {PORT} on instance {change.instance.id}"
        yield only_said(TOOL, f"to limit its network: needs {lacks} (its port)", needs=lacks)
        return
    if change.desired.network.mode == "shared":
        lacks = f"label {PORT} on instance {change.instance.id}"
        yield only_said(TOOL, f"a flavor keeps no rate free: needs {lacks} (its port)", needs=lacks)
    phase = Phase.LOOSEN if loosens(now, then) else Phase.TIGHTEN
    note = f"what is too much is dropped; Nova advises a QoS policy on the port (label {PORT}) instead"
    yield from _specs(flavor, _vif(now), _vif(then), phase, note)


def _vif(limit: Policed | None) -> dict[str, object]:
    """kB/s, kB/s and kB (resource-limits.rst)."""
    if limit is None:
        return {}
    start = "quota:vif_outbound_"
    return {f"{start}average": limit.kbyte_s, f"{start}peak": limit.kbyte_s, f"{start}burst": limit.burst_kbyte}


def _port_network(change: SettingsChange, port: str) -> Iterator[Step]:
    """A policy of the instance's own, on its port; a new one per change, for rules can only be named by ids."""
    desired = change.desired.network
    if desired is None or _rules(desired) == _rules(change.current.network):
        return
    former = cloud_name(change.instance, POLICY)
    ours = _policy_name(change, change.current.network) if _rules(change.current.network) else None
    made = _made(change, desired)
    then = _policy_name(change, desired) if made else None
    note = "" if former or ours else f"its undo leaves the port without a policy, unless its label {POLICY} names one"
    moved = Command(TOOL, _attached(port, then), _attached(port, former or ours), note)
    gone = backwards(_made(change, change.current.network)) if former in (None, ours) else ()
    phase = Phase.LOOSEN if loosens(policed(change.current.network), policed(desired)) else Phase.TIGHTEN
    yield from (Step(phase, command) for command in (*made, moved, *gone))


def _policy_name(change: SettingsChange, network: NetworkSettings | None) -> str:
    """Distinguished by the rules; at most 255 characters (Neutron's names)."""
    numbers = "-".join(str(number) for rule in _rules(network) for number in rule[1:] if number.isdecimal())
    return f"cotenant-{numbers}-{change.instance.id}"[:255]


def _made(change: SettingsChange, network: NetworkSettings | None) -> tuple[Command, ...]:
    rules = _rules(network)
    if not rules:
        return ()
    policy, name = (TOOL, "network", "qos", "policy"), _policy_name(change, network)
    note = "taken back with its policy: rules have no names"
    return (
        Command(TOOL, (*policy, "create", name), (*policy, "delete", name)),
        *(
            Command(TOOL, (TOOL, "network", "qos", "rule", "create", "--type", *rule, "--egress", name), (), note)
            for rule in rules
        ),
    )


def _rules(network: NetworkSettings | None) -> tuple[tuple[str, ...], ...]:
    """Types and numbers of the rules on what the server sends (egress from its point of view)."""
    rules: list[tuple[str, ...]] = []
    if network is not None and network.mode == "shared" and network.rate_mbit is not None:
        rules.append(("minimum-bandwidth", "--min-kbps", str(max(1, round(network.rate_mbit * 1000)))))
    limit = policed(network)
    if limit is not None:
        numbers = ("--max-kbps", str(limit.kbit_s), "--max-burst-kbits", str(limit.burst_kbit))
        rules.append(("bandwidth-limit", *numbers))
    return tuple(rules)


def _attached(port: str, policy: str | None) -> tuple[str, ...]:
    if policy is None:
        return (TOOL, "port", "unset", "--qos-policy", port)
    return (TOOL, "port", "set", "--qos-policy", policy, port)
