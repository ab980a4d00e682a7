"""ProxLB beside Cotenant: the stand-in for the Proxmox API, the judge, and ProxLB itself where a Python has it."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from cotenant_proxmox.source import Proxmox

from advisor.domain import Host, Instance, Inventory
from profiler.demand import Demand
from research.arena.clusters import SimulatedCluster, made_up
from research.arena.rebalances import STAY, by_cotenant, table
from research.benchmarks.proxlb.__main__ import main, ours, paired_table, proxlb
from research.benchmarks.proxlb.asked import MODES, ProxlbError, by_proxlb, read_places
from research.benchmarks.proxlb.stand_in import ProxmoxStandIn, serving

TOKEN = "proxlb@pve!benchmark=0123456789abcdef"
PYTHON = os.environ.get("COTENANT_TEST_PROXLB_PYTHON")


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    """A host of eight CPUs on which four instances of four vCPUs want twelve, and an empty one."""
    crowd = tuple(Instance(f"vm-{at}", 4, 4096.0, host="pve1", demand={"cpu": Demand(3.0)}) for at in range(4))
    hosts = (Host("pve1", "kvm", 8, 65_536.0), Host("pve2", "kvm", 8, 65_536.0))
    return SimulatedCluster.of(Inventory(hosts, crowd), seed=1)


def test_made_up_clusters_are_the_same_each_time_and_no_host_promises_too_much() -> None:
    one = made_up(3)
    assert one == made_up(3) != made_up(4)
    assert (len(one.hosts), len(one.instances)) == (12, 150)
    for host in one.hosts:
        there = [guest for guest in one.instances if guest.host == host.id]
        assert sum(guest.vcpus for guest in there) <= 2 * host.pcpus
        assert sum(guest.memory_mb for guest in there) <= host.memory_mb


def test_a_placement_that_relieves_a_crowded_host_is_judged_better(cluster: SimulatedCluster) -> None:
    now, apart = cluster.judged(), cluster.after({**cluster.places, "vm-0": "pve2", "vm-1": "pve2"}).judged()
    assert now["simulated below 0.8"] == now["predicted below 0.8"] == 4
    assert apart["simulated below 0.9"] == apart["predicted below 0.9"] == 0
    assert now["simulated short, %"] > 50 > 1 > apart["simulated short, %"]
    assert (now["CPU spread"], now["memory spread"]) == (pytest.approx(150), pytest.approx(25))
    assert (apart["CPU spread"], apart["memory spread"]) == (0, 0)


def test_cotenant_is_held_to_the_number_of_moves(cluster: SimulatedCluster) -> None:
    assert by_cotenant(cluster, 0).cluster.places == cluster.places
    one = by_cotenant(cluster, 1)
    assert one.moves == 1 == sum(one.cluster.places[name] != host for name, host in cluster.places.items())
    assert one.cluster.judged()["simulated short, %"] < cluster.judged()["simulated short, %"]


def test_cotenants_own_sync_reads_the_same_cluster_from_the_stand_in(cluster: SimulatedCluster, tmp_path: Path) -> None:
    with serving(ProxmoxStandIn(cluster), TOKEN, tmp_path) as port:
        der = ssl.PEM_cert_to_DER_cert((tmp_path / "pve.pem").read_text(encoding="ascii"))
        account = ProxmoxAccount(f"https://127.0.0.1:{port}", TOKEN, fingerprint=hashlib.sha256(der).hexdigest())
        reading = Proxmox(open_api=lambda: ProxmoxApi(account)).read()
    assert reading.complete
    hosts = [(one["id"], one["pcpus"], one["memory_mb"]) for one in reading.hosts]
    assert hosts == [(one.id, one.pcpus, one.memory_mb) for one in cluster.inventory.hosts]
    guests = [(one["labels"]["name"], one["host"], one["vcpus"], one["memory_mb"]) for one in reading.instances]
    assert guests == [(one.id, one.host, one.vcpus, one.memory_mb) for one in cluster.inventory.instances]


def test_the_stand_in_reports_pressure_and_moves_no_instance(cluster: SimulatedCluster, tmp_path: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with serving(ProxmoxStandIn(cluster), TOKEN, tmp_path) as port:

        def get(path: str, token: str = TOKEN, method: str = "GET") -> Any:
            request = urllib.request.Request(f"https://127.0.0.1:{port}/api2/json{path}", method=method)
            request.add_header("Authorization", f"PVEAPIToken={token}")
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return json.load(answer)["data"]

        crowded, idle = (get(f"/nodes/{name}/rrddata?timeframe=hour&cf=AVERAGE") for name in ("pve1", "pve2"))
        mean, peak = (get(f"/nodes/pve1/qemu/100/rrddata?timeframe=hour&cf={cf}")[-1] for cf in ("AVERAGE", "MAX"))
        assert len(crowded) == 60
        assert crowded[-1]["pressurecpusome"] > 50
        assert idle[-1]["pressurecpusome"] == crowded[-1]["pressurecpufull"] == 0
        assert 0 < mean["pressurecpufull"] < mean["pressurecpusome"] <= 100
        assert peak["pressurecpufull"] > mean["pressurecpufull"]
        migrate = "/nodes/pve1/qemu/100/migrate"
        for asked in (("/nodes", f"{TOKEN}0", "GET", 401), (migrate, TOKEN, "GET", 501), (migrate, TOKEN, "POST", 501)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(*asked[:3])
            with refused.value as error:
                assert error.code == asked[3]


def test_places_are_read_among_what_proxlb_logs() -> None:
    answer = json.dumps({"guests": {"vm-0": {"node_current": "pve1", "node_target": "pve2"}}}, indent=4)
    assert read_places(f"ProxLB - WARNING - {{}}\n{answer}\nstopping.\n") == {"vm-0": "pve2"}
    for nonsense in ("", "no JSON\n", '{\n"nodes": {}}\n', '{\n"guests": []}\n'):
        with pytest.raises(ProxlbError, match="no guests"):
            read_places(nonsense)


def test_the_tables_say_plainly_who_is_better() -> None:
    def rows(*short: float) -> list[dict[str, float]]:
        return [{"moves": 2.0, "simulated short, %": one} for one in short]

    found = {STAY: rows(9, 9, 9)}
    found |= dict(zip(map(proxlb, MODES), (rows(5, 6, 5), rows(1, 1, 1), rows(1, 3, 2)), strict=True))
    found |= dict(zip(map(ours, MODES), (rows(1, 1, 2), rows(4, 5, 4), rows(3, 1, 2)), strict=True))
    assert "| no moves | 2.00 | 9.00 |" in table(found)
    verdicts = [line.rsplit(": ", 1)[1] for line in paired_table(found).splitlines()[2:]]
    assert verdicts == ["**Cotenant better** |", "**ProxLB better** |", "neither |"]


def test_what_cannot_be_compared_is_reported_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, python = tmp_path / "cloud.yaml", tmp_path / "python"
    file.write_text(
        "hosts: [{id: a, kind: kvm, pcpus: 4, memory_mb: 4096}]\ninstances: [{id: x, host: a}]\n", encoding="utf-8"
    )
    arguments = ["--proxlb-python", str(python), "--seeds", "1", "--inventory", str(file)]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "instance x needs a host and a mean demand for CPU time (cpu_percent)\n"
    file.write_text(file.read_text(encoding="utf-8").replace("host: a}", "host: a, cpu_percent: 9}"), encoding="utf-8")
    python.write_text("#!/bin/sh\necho no module named proxlb\nexit 3\n", encoding="ascii")
    python.chmod(0o755)
    assert main(arguments) == 1
    assert capsys.readouterr().err == "proxlb ended with 3: no module named proxlb\n"


@pytest.mark.skipif(PYTHON is None, reason="COTENANT_TEST_PROXLB_PYTHON names no Python that has proxlb")
@pytest.mark.parametrize("mode", MODES)
def test_proxlb_itself_answers_about_the_stand_in(cluster: SimulatedCluster, mode: str) -> None:
    wanted = by_proxlb(cluster, mode, Path(str(PYTHON)))
    assert set(wanted.cluster.places.values()) <= {"pve1", "pve2"}
    assert wanted.moves > 0 or mode == "psi"  # every instance is on one of two hosts
    assert wanted.cpu_seconds < wanted.seconds
