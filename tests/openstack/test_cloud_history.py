"""`cotenant history` of servers that the real Nova reports: from a real Prometheus, asked itself and through the real
Aetos, and from the real Gnocchi.

The computes are simulated, so the readings are made: a day and more of what libvirt's exporter and Ceilometer would
tell of these very servers, under their names and labels.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor.domain import Instance, PlacementRequest, Recommendation
from advisor.service import Advisor
from advisor.settings import Settings
from tests.openstack.served import command
from tests.servers.prometheus import Prometheus, prometheus
from tests.servers.running import NotInstalled

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab

CPUS = {"day-busy": 1.2, "day-idle": 0.05}  # by flavor, each of two vCPUs
BYTES_PER_S = 1e6  # of each direction of the network and of disks
HOURS, SCRAPED_S, EVERY_S = 26, 60, 300  # Ceilometer reads every five minutes
NOW_S = int(time.time()) // EVERY_S * EVERY_S
BEGIN_S = NOW_S - HOURS * 3600
RESOURCES = ["cpu", "disk_mb_s", "net_mbit"]
Servers = Sequence[Any]  # openstacksdk's
NOTHING = {"global": {"scrape_interval": "1h"}}


@pytest.fixture(scope="module")
def servers(lab: OpenStackLab) -> Iterator[Servers]:
    """Three of each flavor, as Nova reports them."""
    compute = lab.connect().compute
    for flavor in CPUS:
        compute.create_flavor(name=flavor, vcpus=2, ram=2048, disk=1)
    names = [lab.boot(f"{flavor}-{number}", flavor) for flavor in CPUS for number in range(3)]
    lab.placed(names)
    yield [one for one in compute.servers(all_projects=True) if one.id in names]
    lab.delete_servers(*names)


@pytest.fixture(scope="module")
def synced(lab: OpenStackLab, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose database has read the cloud."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "var").mkdir()
    done = command(folder, "sync", "openstack", "--json", env=lab.environment())
    assert done.returncode == 0, done.stderr
    assert {one.id for one in servers} <= set(json.loads(done.stdout)["instances"])
    return folder


@pytest.fixture
def folder(synced: Path, tmp_path: Path) -> Path:
    """One of its own for each test."""
    shutil.copytree(synced / "var", tmp_path / "var")
    return tmp_path


@pytest.fixture(scope="module")
def store(servers: Servers) -> Iterator[Prometheus]:
    try:
        with prometheus(NOTHING, history=exposed(servers)) as running:
            yield running
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def aetos(lab: OpenStackLab, store: Prometheus) -> None:
    from tests.openstack.openstack_lab.telemetry import start_aetos

    start_aetos(lab, store.port)


@pytest.fixture(scope="module")
def gnocchi(lab: OpenStackLab, servers: Servers) -> None:
    from tests.openstack.openstack_lab.telemetry import is_processed, start_gnocchi, store_in_gnocchi

    session = start_gnocchi(lab)
    for one in servers:
        whose = {"instance_id": one.id, "project_id": one.project_id}
        port, disk = f"{one.instance_name}-{one.id}-tap0", f"{one.id}-vda"
        flow, cpu = readings(BYTES_PER_S), readings(CPUS[one.flavor.original_name] * 1e9)
        store_in_gnocchi(session, "instance", one.id, {"cpu": cpu}, project_id=one.project_id)
        network = {f"network.{way}.bytes": flow for way in ("incoming", "outgoing")}
        store_in_gnocchi(session, "instance_network_interface", port, network, **whose)
        blocks = {f"disk.device.{way}.bytes": flow for way in ("read", "write")}
        store_in_gnocchi(session, "instance_disk", disk, blocks, **whose)
    lab.processes.wait_for("Gnocchi's metrics", lambda: is_processed(session))


def readings(per_s: float, every_s: int = EVERY_S) -> list[tuple[int, float]]:
    return [(at, 1e9 + per_s * (at - BEGIN_S)) for at in range(BEGIN_S, NOW_S + 1, every_s)]


def exposed(servers: Servers) -> str:
    """OpenMetrics with times: libvirt_exporter's names, and those of Ceilometer by sg-core (genLabels)."""
    found: dict[str, list[str]] = {}

    def series(name: str, labels: Mapping[str, str], per_s: float) -> None:
        text = ",".join(f'{key}="{one}"' for key, one in labels.items())
        every_s = EVERY_S if name.startswith("ceilometer_") else SCRAPED_S
        lines = found.setdefault(name, [f"# TYPE {name} gauge\n"])
        lines += [f"{name}{{{text}}} {value:.6f} {at}\n" for at, value in readings(per_s, every_s)]

    for one in servers:
        cpus, domain = CPUS[one.flavor.original_name], {"domain": one.instance_name}
        series("libvirt_domain_info_cpu_time_seconds_total", domain, cpus)
        whose = {"publisher": "h1", "project": one.project_id, "vm_instance": one.host_id or "none"}
        series("ceilometer_cpu", {"cpu": one.id, **whose, "resource": one.id, "unit": "ns"}, cpus * 1e9)
        port, disk = f"{one.instance_name}-{one.id}-tap0", f"{one.id}-vda"
        for way, ceilometers in (("receive", "incoming"), ("transmit", "outgoing")):
            of_tap, network = {**domain, "target_device": "tap0"}, {"network": "bytes", **whose, "resource": port}
            series(f"libvirt_domain_interface_stats_{way}_bytes_total", of_tap, BYTES_PER_S)
            series(f"ceilometer_network_{ceilometers}_bytes", network, BYTES_PER_S)
        for way in ("read", "write"):
            series(f"libvirt_domain_block_stats_{way}_bytes_total", {**domain, "target_device": "vda"}, BYTES_PER_S)
            series(f"ceilometer_disk_device_{way}_bytes", {"disk": way, **whose, "resource": disk}, BYTES_PER_S)
    return "".join(line for _, lines in sorted(found.items()) for line in lines) + "# EOF\n"


def history(folder: Path, *words: str, env: Mapping[str, str]) -> dict[str, Any]:
    done = command(folder, "history", *words, "--since", "1d", "--json", env=env)
    assert done.returncode == 0, done.stderr
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


def where(folder: Path, flavor: str, project: str) -> Recommendation:
    """The answer about a new VM of which only flavor and project are known."""
    new_vm = Instance("newcomer", 2, 2048.0, labels={"flavor_name": flavor, "project": project})
    settings = Settings(database=f"sqlite:///{folder}/var/cotenant.sqlite3", state_dir=folder)
    with Advisor(settings) as advisor:
        return advisor.placements.place(PlacementRequest(new_vm, dry_run=True)).recommendation


def check(folder: Path, reported: Mapping[str, Any], servers: Servers) -> None:
    """All servers are known by their history, and a new VM is taken to be like them."""
    assert reported["instances"] == {one.id: RESOURCES for one in servers}
    assert set(reported["changed"]) == {one.id for one in servers}
    with Advisor(Settings(database=f"sqlite:///{folder}/var/cotenant.sqlite3", state_dir=folder)) as advisor:
        for one in servers:
            demand = advisor.inventory.instance(one.id).demand
            assert demand["cpu"].mean == pytest.approx(CPUS[one.flavor.original_name], rel=0.02)
            assert (demand["net_mbit"].mean, demand["disk_mb_s"].mean) == pytest.approx((16.0, 2.0), rel=0.02)
            assert {known.origin for known in demand.values()} == {"history"}
    for flavor in CPUS:
        answer = where(folder, flavor, servers[0].project_id)
        assert answer.evidence is not None
        assert answer.evidence.level == "class"
        (note,) = (one for one in answer.notes if "new VM is taken to be like" in one)
        assert f"with the same flavor ({flavor})" in note
        known = {level for one in answer.candidates for level in one.evidence}
        assert known <= {"history"}


def test_series_of_libvirt_exporter_are_those_of_servers_by_the_name_of_their_domain(
    folder: Path, store: Prometheus, servers: Servers
) -> None:
    reported = history(folder, "libvirt-exporter", "--prometheus", store.url, env={})
    assert reported["unknown"] == []
    check(folder, reported, servers)


@pytest.mark.usefixtures("aetos")
def test_ceilometers_series_come_through_aetos_with_a_token_of_keystone(
    lab: OpenStackLab, folder: Path, servers: Servers
) -> None:
    reported = history(folder, "ceilometer", "--cloud", "envvars", env=lab.environment())
    assert (reported["unknown"], reported["silent"]) == ([], [])
    check(folder, reported, servers)


@pytest.mark.usefixtures("aetos")
def test_a_projects_reader_is_given_the_series_of_its_project_alone(
    lab: OpenStackLab, folder: Path, servers: Servers
) -> None:
    lab.add_user("watcher-of-one", "reader")
    reported = history(folder, "ceilometer", "--cloud", "envvars", "--dry-run", env=lab.environment("watcher-of-one"))
    assert set(reported["instances"]) == {one.id for one in servers}, "all are of the administrator's project"
    lab.add_user("reader-elsewhere", "reader", project="service")
    elsewhere = lab.environment("reader-elsewhere", project="service")
    reported = history(folder, "ceilometer", "--cloud", "envvars", "--dry-run", env=elsewhere)
    assert reported["instances"] == {}


@pytest.mark.usefixtures("aetos")
def test_what_the_cloud_refuses_is_reported_in_one_sentence_without_the_password(
    lab: OpenStackLab, folder: Path
) -> None:
    wrong = {**lab.environment(), "OS_PASSWORD": "not-the-password"}
    done = command(folder, "history", "ceilometer", "--cloud", "envvars", env=wrong)
    assert done.returncode != 0
    assert "does not answer" in done.stderr
    assert "not-the-password" not in done.stderr


@pytest.mark.usefixtures("gnocchi")
def test_meters_in_gnocchi_are_demand_of_the_servers(lab: OpenStackLab, folder: Path, servers: Servers) -> None:
    reported = history(folder, "gnocchi", env=lab.environment())
    assert (reported["unknown"], reported["silent"]) == ([], [])
    check(folder, reported, servers)
