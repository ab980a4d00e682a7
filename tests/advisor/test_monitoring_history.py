"""Demand from what a real Prometheus knows: each preset, waiting beside running, and what is not there."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cotenant_openstack.history import CloudEndpoint, MetricStorage
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from advisor.domain import Host, Instance, Inventory
from advisor.errors import InvalidInput, SeriesUnavailable
from advisor.inventories.systems import GuestHistory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry.monitoring_history import demands_of, load_preset, preset_names, read, teach
from advisor.telemetry.series_store import Scraped, SeriesStore
from models.profiling.demand_estimation import Tally
from profiler.demand import Demand, Resource
from tests.advisor.test_promql import NOTHING
from tests.api import cli_runs
from tests.servers.prometheus import Prometheus, prometheus
from tests.servers.running import NotInstalled

EVERY_S, HOURS = 60, 26
END_S = int(datetime.now(UTC).timestamp()) // 300 * 300
TIMES = range(END_S - HOURS * 3600, END_S + 1, EVERY_S)
SERVER = "7f9d7f5e-0e6c-4c4e-9a37-6a8f1f3f2c11"
Labels = Mapping[str, str]
UID, HEX = "0b7a9f0e-1111-4222-8333-444455556666", "0123456789abcdef" * 4


def counter(name: str, labels: Labels, per_s: float, *, late: float | None = None) -> Iterator[str]:
    """A counter that grows by `per_s` in each second, in the second half of the time by `late`."""
    text, value = ",".join(f'{key}="{one}"' for key, one in labels.items()), 0.0
    for at, time_s in enumerate(TIMES):
        yield f"{name}{{{text}}} {value:.6f} {time_s}\n"
        value += EVERY_S * (per_s if late is None or at < len(TIMES) / 2 else late)


def gauge(name: str, labels: Labels, value: float) -> Iterator[str]:
    text = ",".join(f'{key}="{one}"' for key, one in labels.items())
    return (f"{name}{{{text}}} {value} {time_s}\n" for time_s in TIMES)


def both(name: str, labels: Labels, per_s: float, *suffixes: str) -> Iterator[str]:
    for suffix in suffixes:
        yield from counter(f"{name}_{suffix}", labels, per_s)


def proxmox(guest: Labels) -> Iterator[Iterator[str]]:
    """What one scraped node says of a guest somewhere in its cluster, before counters were called `_total`."""
    yield gauge("pve_cpu_usage_ratio", guest, 0.125)
    yield gauge("pve_cpu_usage_limit", guest, 4)
    yield gauge("pve_guest_info", {**guest, "name": "pve-1", "node": "pve"}, 1)
    yield both("pve_network", guest, 1e6, "receive_bytes", "transmit_bytes")
    yield both("pve_disk", guest, 1.5e6, "read_bytes", "write_bytes")


def exposed() -> dict[str, list[str]]:
    """Lines of each metric: what exporters tell of one instance each, 0.5 CPUs, 16 Mbit/s and 3 MB/s as a rule."""
    db, disk = {"domain": "db-1"}, {"domain": "db-1", "target_device": "vda"}
    tap, inside = {"domain": "db-1", "target_device": "tap0"}, {"instance": "10.0.0.5:9100"}
    slices = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    pod = {"id": f"{slices}/cri-containerd-{HEX}.scope", "name": HEX, "namespace": "shop", "pod": "web-7"}
    whole = {"id": slices, "name": "", "namespace": "shop", "pod": "web-7"}
    docker = {"id": f"/docker/{HEX[::-1]}", "name": "db-2"}
    vmi, guest = {"namespace": "shop", "name": "vm-1", "node": "n1"}, {"id": "qemu/100", "instance": "pve1:9221"}
    found = [
        counter("libvirt_domain_info_cpu_time_seconds_total", db, 0.3, late=0.7),
        counter("libvirt_domain_vcpu_delay_seconds_total", {**db, "vcpu": "0"}, 0.1),
        both("libvirt_domain_interface_stats", tap, 1e6, "receive_bytes_total", "transmit_bytes_total"),
        both("libvirt_domain_block_stats", disk, 1.5e6, "read_bytes_total", "write_bytes_total"),
        counter("libvirt_domain_info_cpu_time_seconds_total", {"domain": "stranger"}, 0.3),
        counter("node_cpu_seconds_total", {**inside, "cpu": "0", "mode": "user"}, 0.4),
        counter("node_cpu_seconds_total", {**inside, "cpu": "0", "mode": "steal"}, 0.1),
        counter("node_cpu_seconds_total", {**inside, "cpu": "0", "mode": "idle"}, 0.5),
        gauge("node_uname_info", {**inside, "nodename": "app-1"}, 1),
        both("node_network", {**inside, "device": "eth0"}, 1e6, "receive_bytes_total", "transmit_bytes_total"),
        both("node_disk", {**inside, "device": "vda"}, 1.5e6, "read_bytes_total", "written_bytes_total"),
        counter("container_cpu_usage_seconds_total", {**pod, "cpu": "total"}, 0.3),
        counter("container_cpu_usage_seconds_total", {**whole, "cpu": "total"}, 0.3),
        counter("container_cpu_usage_seconds_total", {"id": pod["id"], "name": HEX, "cpu": "total"}, 0.3),  # alone, too
        counter("container_cpu_usage_seconds_total", {**docker, "cpu": "cpu00"}, 0.1),
        counter("container_cpu_usage_seconds_total", {**docker, "cpu": "cpu01"}, 0.2),
        counter("container_cpu_usage_seconds_total", {"id": "/lxc/mail-1", "cpu": "cpu00"}, 0.2),
        counter("container_cpu_schedstat_runqueue_seconds_total", pod, 0.3),
        counter("container_cpu_cfs_throttled_seconds_total", pod, 0.1),
        both("container_network", pod, 1e6, "receive_bytes_total", "transmit_bytes_total"),
        both("container_fs", pod, 1.5e6, "reads_bytes_total", "writes_bytes_total"),
        counter("kubevirt_vmi_cpu_usage_seconds_total", vmi, 0.4),
        counter("kubevirt_vmi_vcpu_delay_seconds_total", vmi, 0.1),
        both("kubevirt_vmi_network", vmi, 1e6, "receive_bytes_total", "transmit_bytes_total"),
        both("kubevirt_vmi_storage", vmi, 1.5e6, "read_traffic_bytes_total", "write_traffic_bytes_total"),
        counter("kubevirt_vmi_cpu_usage_seconds_total", {**vmi, "name": "vm-2"}, 0.4),
        counter("kubevirt_vmi_cpu_usage_seconds_total", {**vmi, "name": "vm-2", "namespace": "bank"}, 0.4),
        *(series for scraped in ("pve1:9221", "pve2:9221") for series in proxmox({**guest, "instance": scraped})),
        counter("ceilometer_cpu", {"resource": SERVER, "project": "p", "vm_instance": "0a1b"}, 0.5e9),
        both(
            "ceilometer_network",
            {"resource": f"instance-0000000a-{SERVER}-tap1"},
            1e6,
            "incoming_bytes",
            "outgoing_bytes",
        ),
        both("ceilometer_disk_device", {"resource": f"{SERVER}-vda"}, 1.5e6, "read_bytes", "write_bytes"),
    ]
    lines: dict[str, list[str]] = {}
    for series in found:
        for line in series:
            lines.setdefault(line.partition("{")[0], []).append(line)
    return lines


def _scraped_by(line: str, scraper: str) -> str:
    """The same as another job scrapes it, or another replica, of which a store that holds both says so in a label."""
    return line.replace("{", f'{{job="{scraper}",replica="{scraper}",', 1)


@pytest.fixture(scope="module", params=[("a",), ("a", "b")], ids=["scraped once", "scraped twice"])
def store(request: pytest.FixtureRequest) -> Iterator[Prometheus]:
    text = [
        line
        for name, lines in sorted(exposed().items())
        for line in (f"# TYPE {name} gauge\n", *(_scraped_by(line, each) for each in request.param for line in lines))
    ]
    try:
        with prometheus(NOTHING, history="".join([*text, "# EOF\n"])) as running:
            yield running
    except NotInstalled as missing:
        pytest.skip(str(missing))


INSTANCES = (
    Instance("u-1", 2, host="h1", labels={"domain": "db-1"}),
    Instance("app-1", 2, host="h1"),
    Instance(UID, 2, host="h1"),
    Instance("vm-1", 2, host="h1"),
    Instance("100", 4, host="h1"),
    Instance("db-2", 2, host="h1"),
    Instance("mail-1", 2, host="h1"),
    Instance("vm-2", 2, host="h1"),
    Instance(SERVER, 2, host="h1"),
)
WANTED = {
    "libvirt-exporter": 0.51,
    "node-exporter": 0.405,
    "cadvisor": 0.308,
    "ceilometer": 0.5,
    "kubevirt": 0.405,
    "pve-exporter": 0.5,
}  # CPUs
PRESETS = {
    "libvirt-exporter": "u-1",
    "node-exporter": "app-1",
    "cadvisor": UID,
    "ceilometer": SERVER,
    "kubevirt": "vm-1",
    "pve-exporter": "100",
}


def asked(store: Prometheus, preset: str, **others: Any) -> Any:
    settings = Settings(prometheus_url=store.url)
    now = datetime.fromtimestamp(END_S, UTC)
    return read(SeriesStore.of(settings), load_preset(preset), INSTANCES, since_s=25 * 3600.0, now=now, **others)


def test_there_is_a_case_for_every_preset() -> None:
    assert set(PRESETS) == set(preset_names())


@pytest.mark.parametrize(("preset", "name"), PRESETS.items())
def test_every_preset_tells_the_demand_of_its_exporters_instances(store: Prometheus, preset: str, name: str) -> None:
    found = asked(store, preset)
    demands = found.demands[name]
    cpu = WANTED[preset]
    assert demands["cpu"].mean == pytest.approx(cpu, rel=0.02)
    assert (demands["net_mbit"].mean, demands["disk_mb_s"].mean) == pytest.approx((16.0, 3.0), rel=0.01)
    assert {one.origin for one in demands.values()} == {"history"}
    assert demands["cpu"].windows == 300
    assert found.silent == ()


def test_containers_are_known_by_their_pods_their_names_or_their_control_groups(store: Prometheus) -> None:
    found = asked(store, "cadvisor")
    assert {name: round(one["cpu"].mean, 2) for name, one in found.demands.items()} == {
        UID: pytest.approx(WANTED["cadvisor"], abs=0.01), "db-2": 0.3, "mail-1": 0.2,
    }  # fmt: skip
    assert found.unknown == ()


def test_a_name_that_two_namespaces_have_is_left_out_and_reported(store: Prometheus) -> None:
    found = asked(store, "kubevirt")
    assert set(found.demands) == {"vm-1"}
    assert found.unknown == ("bank.vm-2", "shop.vm-2")


def test_guests_with_names_of_other_scripts_are_known_by_their_label() -> None:
    class Watched:
        def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]:
            times = [begin.timestamp() + step_s * step for step in range(20)]
            if "cpu_time" in query:
                for name in ("Склад №3", unicodedata.normalize("NFD", "hôte"), "双", "сам"):
                    yield Scraped({"domain": name}, times, [1.5] * 20)

    labels = {"a-1": "Склад №3", "b-1": "hôte", "c-1": "双", "c-2": "双"}
    guests = [Instance(name, vcpus=4, labels={"name": label}) for name, label in labels.items()]
    found = read(Watched(), load_preset("libvirt-exporter"), guests, since_s=7200, now=datetime.now(UTC))
    assert {name: demand["cpu"].mean for name, demand in found.demands.items()} == {"a-1": 1.5, "b-1": 1.5}
    assert set(found.unknown) == {"双", "сам"}  # of two, and of none


def test_a_subquery_as_aetos_takes_it_gives_what_a_range_does(store: Prometheus) -> None:
    """Aetos hands queries on to Prometheus; here keystoneauth's session has no token and asks Prometheus itself."""
    adapter = Adapter(Session(), endpoint_override=store.url)
    begin, end = (datetime.fromtimestamp(END_S - back_s, UTC) for back_s in (6 * 3600, 0))
    query = load_preset("ceilometer").queries["cpu"]
    by_range = list(SeriesStore(store.url).range(query, begin, end, 300))
    assert list(MetricStorage(CloudEndpoint(adapter, "Aetos")).range(query, begin, end, 300)) == by_range
    assert [len(one.times) for one in by_range] == [73]


def test_demand_over_time_varies_as_the_series_do_and_strangers_are_named(store: Prometheus) -> None:
    found = asked(store, "libvirt-exporter")
    assert found.unknown == ("stranger",)
    cpu = found.demands["u-1"]["cpu"]
    assert cpu.p95 == pytest.approx(0.714, rel=0.1)
    assert cpu.spread == pytest.approx(0.2, rel=0.2)


def test_reading_tells_how_far_it_is(store: Prometheus) -> None:
    seen: list[tuple[int, int]] = []
    asked(store, "pve-exporter", progress=lambda done, of: seen.append((done, of)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_store_that_does_not_answer_is_one_error() -> None:
    store = SeriesStore("http://127.0.0.1:1")
    with pytest.raises(SeriesUnavailable, match="does not answer"):
        read(store, load_preset("kubevirt"), INSTANCES, since_s=3600.0, now=datetime.now(UTC))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("labels = [", "is no TOML"),
        ("labels = []\n[queries]\ncpu = 'x'", "field labels: must be a list"),
        ("labels = ['a']", "field queries: must be a table"),
        ("labels = ['a']\n[queries]\ncpus = 'x'", "field queries.cpus: is none of cpu, net_mbit"),
        ("labels = ['a']\n[queries]\ncpu = 7", "field queries.cpu: must be PromQL"),
        ("labels = ['a']\n[queries]\nwaiting = 'x'", "field queries: has none of cpu"),
    ],
)
def test_a_preset_that_is_wrong_is_refused_with_its_field(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=words):
        load_preset(str(file))


@pytest.mark.parametrize("name", ["ghost", "../x", "missing.toml"])
def test_a_preset_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"is none of cadvisor|cannot be read"):
        load_preset(name)


def test_a_counter_gone_wrong_teaches_nothing() -> None:
    row = {300.0 * at: 1e300 if at == 7 else 20.0 for at in range(24)}
    tallies: dict[tuple[str, Resource], Tally] = {}
    teach(tallies, "net_mbit", {"a": row})
    assert tallies["a", "net_mbit"].mean == pytest.approx(20.0)
    guest = GuestHistory("a", windows={"net_mbit": row}, means={"net_mbit": [(-1800.0, 1800.0, 1e300)]})
    reported = demands_of([guest], {"a": Instance("a", vcpus=1)}, progress=lambda _done, _of: None)
    assert reported.demands["a"]["net_mbit"].mean == pytest.approx(20.0)


def test_history_counts_in_answers_until_something_better_is_known(
    store: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var").mkdir()
    given = Instance("app-1", 2, host="h1", demand={"cpu": Demand(1.5)})
    with Advisor(Settings()) as advisor:
        cloud = Inventory((Host("h1", "kvm", 16, 65536.0),), (INSTANCES[0], given))
        advisor.inventory.put(cloud, mode="replace", generation=None)

    def run(*arguments: str) -> Any:
        reported = cli_runs.run("history", *arguments, "--prometheus", store.url, "--since", "20h", "--json")
        assert reported.exit_code == 0, reported.stderr
        return json.loads(reported.stdout)

    assert run("libvirt-exporter", "--dry-run")["changed"] == ["u-1"]
    assert run("libvirt-exporter")["changed"] == ["u-1"]
    assert run("libvirt-exporter")["changed"] == []
    assert run("node-exporter")["instances"] == {"app-1": ["cpu", "disk_mb_s", "net_mbit"]}
    with Advisor(Settings()) as advisor:
        assert advisor.inventory.instance("u-1").demand["cpu"].origin == "history"
        assert advisor.inventory.instance("app-1").demand["cpu"] == given.demand["cpu"]
        assert advisor.inventory.instance("app-1").demand["net_mbit"].origin == "history"
        assert advisor.access.audit(limit=1).items[0].operation == "history.take"
