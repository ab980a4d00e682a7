"""On which kinds of CPUs a guest of Proxmox VE can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from cotenant_proxmox.cpus import Nodes
from cotenant_proxmox.source import Proxmox
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, node, serving

V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 aes avx avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
NODES = {"pve1": ("AMD EPYC 9554", V4), "pve2": ("AMD EPYC 7543", V3), "pve3": ("Intel Xeon Gold 6338", V4)}


@pytest.mark.parametrize(
    ("cpu", "rule"),
    [
        (None, {}),
        ("kvm64", {}),
        ("x86-64-v2-AES", {}),
        ("cputype=x86-64-v3,hidden=1", {}),
        ("x86-64-v4", {"require_any.cpu_model": "AMD EPYC 9554, Intel Xeon Gold 6338"}),
        ("host", {"require.cpu_model": "AMD EPYC 9554"}),
        ("cputype=host,flags=+aes", {"require.cpu_model": "AMD EPYC 9554"}),
        ("EPYC-Rome", {"require_any.cpu_model": "AMD EPYC 9554, AMD EPYC 7543"}),
        ("EPYC,flags=+avx512f;-pcid", {"require_any.cpu_model": "AMD EPYC 9554"}),
        ("kvm64,flags=+avx512f;+hv-tlbflush", {"require_any.cpu_model": "AMD EPYC 9554, Intel Xeon Gold 6338"}),
        ("Skylake-Server", {}),  # it runs on a CPU of AMD's, so the name says nothing
        ("custom-ours", {}),
    ],
)
def test_a_guest_runs_where_its_flags_are(cpu: str | None, rule: dict[str, str]) -> None:
    nodes = Nodes()
    for name, (model, flags) in NODES.items():
        nodes.add(name, {"cpuinfo": {"model": model, "flags": flags}})
    assert nodes.rule(cpu, "pve1") == rule


@pytest.mark.parametrize("odd", [{}, {"cpuinfo": None}, {"cpuinfo": {"model": 5}}, {"cpuinfo": {"model": " "}}])
def test_a_node_that_reports_no_cpu_gives_no_rule(odd: dict[str, object]) -> None:
    nodes = Nodes()
    nodes.add("pve1", {"cpuinfo": {"model": "AMD EPYC 9554", "flags": V4}})
    nodes.add("pve2", odd)
    assert nodes.rule("host", "pve1") == nodes.rule("host", "pve2") == {}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def source(cluster: Cluster) -> Iterator[Proxmox]:
    with serving(cluster) as url:
        yield Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(url, TOKEN)))


def test_the_rule_is_read_and_ends_with_the_type(source: Proxmox, cluster: Cluster) -> None:
    cluster.nodes = [node(name) for name in NODES]
    cluster.cpuinfo = {name: {"model": model, "flags": flags} for name, (model, flags) in NODES.items()}
    cluster.configs[100]["cpu"] = "host"
    (vm, _) = sorted(source.read().instances, key=lambda one: str(one["id"]))
    assert vm["labels"]["require.cpu_model"] == "AMD EPYC 9554"
    assert "require.cpu_model" in source.read().own_labels
