"""Inventory, scene and instance-list files: what they say, and that every mistake names file, line and field."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.inventories import document
from advisor.inventories.static import load_instances, load_inventory, load_scene
from profiler.demand import Demand, Resource
from profiler.observed import NetworkSettings
from tests.examples import examples

IDLE = "{id: idle, host: null, max_latency_ratio: 3, max_time_short: 0.01, exclusive: true}"
CLOUD = """\
# a small cloud
observed_at: 2026-01-02T03:04:05Z
hosts:
  - id: h1
    kind: xen
    pcpus: 8
    memory_mb: 16384
    threads_per_core: 2
    nic_mbit: 1e3
    disk_kind: ssd
    numa: ["0-3", "4-7"]
    driver_cpus: 0
    labels: {zone: no, rack: 07}
    platform: I
  - {id: h2, kind: kvm, pcpus: 4, memory_mb: 8192.5, driver_cpus: [0, 2-3], enabled: false, driver_overcommit: 1.5,
     disk_mb_s: 450, mem_bw_mb_s: 2e4, second_thread: 0.3, turbo_mhz: 3700}
instances:
  - id: shop-1
    host: h1
    vcpus: 2
    memory_mb: 1024
    workload: web 1K
    load: 0.5
    pinning: 0:2|1:3
    cap_percent: 150
    weight: 512
    network: {mode: shared, rate_mbit: 200, ceil_mbit: 1000}
    disk_limit_mb_s: 50
    service: latency
    min_throughput_ratio: 0.9
  - IDLE
workloads:
  - {name: web 1K, platform: I, metrics: {cpu: 50, driver_domain.cpu: 30, instance.block: 1, llc_misses: 1.5e9}}
""".replace("IDLE", IDLE)


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text(CLOUD, encoding="utf-8")
    return path


def test_an_inventory_says_what_its_file_says(cloud: Path) -> None:
    assert load_inventory(cloud) == Inventory(
        hosts=(
            Host(
                "h1", "xen", 8, 16384.0, threads_per_core=2, nic_mbit=1000.0, disk_kind="ssd", platform="I",
                numa=((0, 1, 2, 3), (4, 5, 6, 7)), driver_cpus=(0,), labels={"zone": "no", "rack": "07"},
            ),
            Host(
                "h2", "kvm", 4, 8192.5, driver_cpus=(0, 2, 3), enabled=False, driver_overcommit=1.5, disk_mb_s=450.0,
                mem_bw_mb_s=20_000.0,
                second_thread=0.3,
                turbo_mhz=3700.0,
            ),
        ),
        instances=(
            Instance(
                "shop-1", 2, 1024.0, host="h1", workload="web 1K", load=0.5, service="latency",
                min_throughput_ratio=0.9,
                settings=IsolationSettings(
                    Pinning(((2,), (3,))), 150.0, 512, NetworkSettings("shared", 200.0, 1000.0), 50.0
                ),
            ),
            Instance("idle", max_latency_ratio=3.0, max_time_short=0.01, exclusive=True),
        ),
        workloads=(
            WorkloadProfile(
                "web 1K", {"cpu": 50.0, "driver_domain.cpu": 30.0, "block": 1.0, "llc_misses": 1.5e9}, platform="I"
            ),
        ),
        observed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )  # fmt: skip


def test_a_json_file_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "cloud.json"
    path.write_text(json.dumps({"hosts": [{"id": "h1", "kind": "kvm", "pcpus": 4, "memory_mb": 1024}]}))
    assert [host.id for host in load_inventory(path).hosts] == ["h1"]


def test_pins_are_to_the_numbers_of_the_cpus(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    host = "{id: p, kind: kvm, pcpus: 4, memory_mb: 1024%s}"
    text = f"hosts:\n  - {host}\ninstances:\n  - {{id: i, host: p, pinning: '0:41'}}\n"
    path.write_text(text % "")
    with pytest.raises(InvalidInput, match="cpu_ids") as refused:
        load_inventory(path)
    assert refused.value.field == "instances[0].pinning"
    left_out: list[str] = []
    assert load_inventory(path, left_out).instances[0].settings.pinning is None
    assert ["line 4, field instances[0].pinning" in sentence for sentence in left_out] == [True]
    path.write_text(text % ", cpu_ids: '0,1,40-41', isolated_cpus: [41], numa: ['0-1', '40-41'], driver_cpus: 40")
    cloud = load_inventory(path)
    assert (cloud.hosts[0].cpu_ids, cloud.hosts[0].isolated_cpus) == ((0, 1, 40, 41), (41,))
    assert cloud.instances[0].settings.pinning == Pinning(((41,),))


def test_cores_with_several_threads_are_lists_of_cpus(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    text = "hosts:\n  - {id: p, kind: kvm, pcpus: 6, memory_mb: 1024, siblings: %s}\n"
    path.write_text(text % "['0-1', '2,3']")
    (host,) = load_inventory(path).hosts
    assert (host.siblings, host.threads_per_core) == (((0, 1), (2, 3)), 2)
    path.write_text(text % "['0-1', '1-2']")
    with pytest.raises(InvalidInput, match="two cores") as refused:
        load_inventory(path)
    assert "line 2" in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after", "line", "field", "reason"),
    [
        ("pcpus: 8", "pcpus: eight", 6, "hosts[0].pcpus", "not a whole number"),
        ("pcpus: 8", "pcpus: 8.5", 6, "hosts[0].pcpus", "not a whole number"),
        ("pcpus: 8", 'pcpus: "8"', 6, "hosts[0].pcpus", "text in quotes"),
        ("pcpus: 8", "pcpus: [8]", 6, "hosts[0].pcpus", "a structure"),
        ("pcpus: 8", "pcpus: 0", 6, "hosts[0].pcpus", "outside 1-4096"),
        ("pcpus: 8", "pcpus: 999999999999999999999999", 6, "hosts[0].pcpus", "not a whole number"),
        ("pcpus: 8", "pcpu: 8", 6, "hosts[0].pcpu", "not a known field"),
        ("    pcpus: 8\n", "", 4, "hosts[0]", "field pcpus is missing"),
        ("memory_mb: 16384", "memory_mb: .nan", 7, "hosts[0].memory_mb", "not a finite number"),
        ("memory_mb: 16384", "memory_mb: 1e999", 7, "hosts[0].memory_mb", "outside"),
        ("memory_mb: 16384", "memory_mb: -1", 7, "hosts[0].memory_mb", "outside"),
        ("memory_mb: 16384", "memory_mb: 1e12", 7, "hosts[0].memory_mb", "outside"),
        ("kind: xen", "kind: vax", 5, "hosts[0].kind", "none of xen, kvm, lxc"),
        ("driver_cpus: 0", "driver_cpus: 9", 12, "hosts[0].driver_cpus", "name CPU 9; it has 0-7"),
        ("driver_cpus: 0", "second_thread: 1.5", 12, "hosts[0].second_thread", "outside 0-1"),
        ("driver_cpus: 0", "turbo_mhz: fast", 12, "hosts[0].turbo_mhz", "not a finite number"),
        ("driver_cpus: 0", "cpu_ids: 0-6", 12, "hosts[0].cpu_ids", "name 7 CPUs, pcpus is 8"),
        ("driver_cpus: 0", "isolated_cpus: 6-8", 12, "hosts[0].isolated_cpus", "name CPU 8"),
        ("driver_cpus: 0", "driver_cpus: 3-1", 12, "hosts[0].driver_cpus", "backwards"),
        ('"4-7"', '"4-8"', 11, "hosts[0].numa", "names CPU 8; the host has 0-7"),
        ("labels: {zone: no, rack: 07}", "labels: [zone]", 13, "hosts[0].labels", "must be a mapping"),
        ("labels: {zone: no, rack: 07}", "labels: {zone: a, zone: b}", 13, "hosts[0].labels.zone", "stands twice"),
        ("labels: {zone: no, rack: 07}", "labels: {render: bogus}", 13, "hosts[0].labels.render", "not for 'bogus'"),
        ("labels: {zone: no, rack: 07}", "labels: {uplink: a b}", 13, "hosts[0].labels.uplink", "not an interface"),
        ("load: 0.5", "labels: {mac: '52'}", 23, "instances[0].labels.mac", "not a MAC address"),
        ("id: h2", "id: h1", 15, "hosts[1].id", "stands twice, first in line 4"),
        ("enabled: false", "enabled: perhaps", 15, "hosts[1].enabled", "neither true nor false"),
        ("id: shop-1", "id: shop 1", 18, "instances[0].id", "not 1-255 letters"),
        ("host: h1\n", "host: h9\n", 19, "instances[0].host", "no host h9 in this file"),
        ("load: 0.5", "load: 11", 23, "instances[0].load", "outside (0, 10]"),
        ("0:2|1:3", "0:2|1:8", 24, "instances[0].pinning", "pinned to pCPU 8"),
        ("0:2|1:3", "0:2|1:3|2:4", 24, "instances[0].pinning", "has 2 vCPUs"),
        ("0:2|1:3", "1:3", 24, "instances[0].pinning", "not numbered from 0"),
        ("cap_percent: 150", "cap_percent: 0", 25, "instances[0].cap_percent", "not above 0"),
        ("weight: 512", "weight: 70000", 26, "instances[0].weight", "outside 1-65535"),
        ("mode: shared", "mode: own", 27, "instances[0].network.mode", "none of none, shared, dedicated"),
        ("rate_mbit: 200, ", "", 27, "instances[0].network", "needs a rate_mbit"),
        ("ceil_mbit: 1000", "ceil_mbit: 100", 27, "instances[0].network", "below rate_mbit"),
        ("service: latency", "service: fast", 29, "instances[0].service", "none of latency, throughput"),
        ("ratio: 0.9", "ratio: 2", 30, "instances[0].min_throughput_ratio", "outside (0, 1]"),
        ("cpu: 50", "cpu: -1", 33, "workloads[0].metrics.cpu", "outside"),
        ("cpu: 50", "instance.cpu: 1, cpu: 50", 33, "workloads[0].metrics.cpu", "stands there already"),
        ("max_latency_ratio: 3", "max_latency_ratio: 0.5", 31, "instances[1].max_latency_ratio", "below 1"),
        ("max_time_short: 0.01", "max_time_short: 1", 31, "instances[1].max_time_short", "outside [0, 1)"),
        ("exclusive: true", "exclusive: 1", 31, "instances[1].exclusive", "neither true nor false"),
        ("driver_overcommit: 1.5", "driver_overcommit: 0", 15, "hosts[1].driver_overcommit", "outside 0.01-1000"),
        ("name: web 1K", "name: [a]", 33, "workloads[0].name", "must be a text"),
        (IDLE, "idle", 31, "instances[1]", "must be a mapping"),
        ("# a small cloud", "cloud: mine", 1, "cloud", "not a known field"),
        ("2026-01-02T03:04:05Z", "yesterday", 2, "observed_at", "not a time"),
        ("id: h1", "id: &anchor h1", 4, "hosts[0].id", "anchors and aliases are not read"),
        ("id: h1", "id: !!python/name:os.system h1", 4, "hosts[0].id", "is not read"),
    ],
)
def test_a_mistake_names_file_line_field_and_reason(
    cloud: Path, before: str, after: str, line: int, field: str, reason: str
) -> None:
    assert before in CLOUD
    cloud.write_text(CLOUD.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        load_inventory(cloud)
    assert caught.value.field is not None
    assert caught.value.field.startswith(field)
    assert f"{cloud}, line {line}, field {field}" in caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1: the file is empty"),
        (b"# nothing\n", "line 1: the file is empty"),
        (b"hosts: []\n---\nhosts: []\n", "line 2: holds more than one document"),
        (b"hosts:\n\t- id: h1\n", "line 2"),
        (b"hosts: [\n", "line 2"),
        (b"hosts: []\nlabel: \xff\n", "line 2: is not UTF-8"),
        ("hosts: []".encode("utf-16"), "line 1: is not UTF-8"),
        (b"hosts: []\n\x00", "not allowed"),
        (b"- id: h1\n", "must be a mapping"),
        (b"hosts: " + b"[" * 100_000, "more than 20 levels"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\n", "line 1"),
        (b"? [a, b]\n: 1\n", "a structure where a field's name should be"),
    ],
)
def test_a_file_that_is_no_plain_document_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        load_inventory(path)
    assert reason in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_missing_a_directory_or_huge_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        load_inventory(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="is a directory"):
        load_inventory(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_inventory(tmp_path / ("x" * 300))
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(document.MAX_BYTES + 1)
    with pytest.raises(InvalidInput, match="larger than 16 MiB"):
        load_inventory(huge)


def test_both_yaml_readers_of_pyyaml_understand_alike(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = load_inventory(cloud)
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    assert load_inventory(cloud) == fast


def test_profiles_of_datasets_are_added_and_the_file_wins(tmp_path: Path) -> None:
    dataset = tmp_path / "lab"
    dataset.mkdir()
    (dataset / "dataset.yaml").write_text("name: lab\norigin: measured\n")
    (dataset / "platforms.csv").write_text("platform,kind,pcpus,memory_mb\nI,xen,4,8192\n")
    (dataset / "profiles.csv").write_text(
        "platform,workload,load,scope,metric,value,unit,repeat\n"
        "I,web,1.0,instance,cpu,50,%,1\nI,batch,1.0,instance,cpu,99,%,1\n"
    )
    (dataset / "colocations.csv").write_text("run,platform,instance,workload,outcome,solo,colocated\n")
    path = tmp_path / "cloud.yaml"
    path.write_text("datasets: [lab]\nworkloads:\n  - {name: web, platform: I, metrics: {cpu: 10}}\n")
    found = {workload.name: workload.metrics["cpu"] for workload in load_inventory(path).workloads}
    assert found == {"web": 10.0, "batch": 99.0}
    path.write_text("datasets:\n  - elsewhere\n")
    with pytest.raises(InvalidInput, match=r"line 2, field datasets\[0\].*elsewhere"):
        load_inventory(path)


SCENE = """\
host: {kind: xen, pcpus: 4, memory_mb: 8192}
instances:
  - {id: a, vcpus: 1, workload: web}
  - {id: b, vcpus: 1, workload: web, pinning: 0:3}
workloads:
  - {name: web, metrics: {cpu: 90}}
"""


def test_a_scene_puts_its_instances_on_its_host(tmp_path: Path) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(SCENE)
    scene = load_scene(path)
    assert [instance.host for instance in scene.instances] == [scene.host.id] * 2
    assert scene.workloads[0].metrics == {"cpu": 90.0}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("host: {", "hosts: {", "line 1, field hosts: is not a known field"),
        ("host: {kind: xen, pcpus: 4, memory_mb: 8192}\n", "", "field host is missing"),
        ("id: b,", "id: a,", "line 4, field instances[1].id: a stands twice, first in line 3"),
        ("id: b,", "id: b, host: h9,", "line 4, field instances[1].host: there is no host h9"),
        ("0:3", "0:4", "line 4, field instances[1].pinning"),
        (
            "  - {id: a, vcpus: 1, workload: web}\n  - {id: b, vcpus: 1, workload: web, pinning: 0:3}\n",
            "",
            "instances is missing or empty",
        ),
    ],
)
def test_a_mistake_in_a_scene_is_named(tmp_path: Path, before: str, after: str, reason: str) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(SCENE.replace(before, after, 1))
    with pytest.raises(InvalidInput) as caught:
        load_scene(path)
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "content", ["id: a\nvcpus: 2\n", "- {id: a, vcpus: 2}\n", "instances:\n  - {id: a, vcpus: 2}\n"]
)
def test_instances_come_alone_in_a_list_or_under_their_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "add.yaml"
    path.write_text(content)
    assert load_instances(path) == (Instance("a", vcpus=2),)


def test_an_instance_that_stands_twice_in_a_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "add.yaml"
    path.write_text("- {id: a, vcpus: 1}\n- {id: a, vcpus: 2}\n")
    with pytest.raises(InvalidInput, match=r"line 2, field \[1\].id: a stands twice"):
        load_instances(path)


words = st.sampled_from(
    [
        *"{}[]:,-&*!|>'\"%@#?\n \t\x85\u2028",
        *("hosts", "instances", "workloads", "datasets", "id", "kind", "pcpus", "memory_mb", "metrics", "network"),
        *("pinning", "xen", "h1", "1", "-1", "0:2", ".nan", "1e999", "null", "\n  - ", ": ", "---"),
    ]
)
several = settings(max_examples=examples(150), deadline=None)


@several
@given(content=st.binary(max_size=200) | st.lists(words, max_size=60).map(lambda parts: "".join(parts).encode()))
@example(content=b"\xef\xbb\xbfhosts: []")
@example(content=b"%YAML 9.9\n---\nhosts: []")
@example(content=b"hosts: !<tag:yaml.org,2002:map> {}")
@example(content=b"hosts: [{id: h1, kind: xen, pcpus: 1, memory_mb: 1, labels: {null: null}}]")
def test_whatever_the_bytes_are_the_loader_answers_or_says_what_is_wrong(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_bytes(content)
    for load in (load_inventory, load_scene, load_instances):
        try:
            load(path)
        except InvalidInput as error:
            assert str(path) in error.message
            assert error.message.isprintable()


@several
@given(position=st.integers(0, len(CLOUD) - 1), replacement=words)
def test_a_good_file_with_one_place_spoilt_is_read_or_refused(tmp_path: Path, position: int, replacement: str) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(CLOUD[:position] + replacement + CLOUD[position + 1 :], encoding="utf-8")
    try:
        assert isinstance(load_inventory(path), Inventory)
    except InvalidInput as error:
        assert "line " in error.message


@pytest.mark.measured
def test_a_cloud_of_a_thousand_hosts_is_read_in_seconds(tmp_path: Path) -> None:
    lines = ["hosts:", *(f"  - {{id: h{number}, kind: kvm, pcpus: 16, memory_mb: 65536}}" for number in range(1000))]
    lines += ["instances:", *(f"  - {{id: i{number}, host: h{number % 1000}, vcpus: 2}}" for number in range(5000))]
    path = tmp_path / "cloud.yaml"
    path.write_text("\n".join(lines))
    start = time.monotonic()
    assert len(load_inventory(path).instances) == 5000
    assert time.monotonic() - start < 20  # 0.5 s on an idle machine; the bound is for busy ones


def _reported(folder: Path, reported: str) -> Path:
    path = folder / "one.yaml"
    path.write_text(f"id: shop-1\nvcpus: 2\n{reported}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("demand: {cpu: 0.4}", {"cpu": Demand(0.4)}),
        ("demand:\n  cpu: {mean: 0.4, spread: 0.2, p95: 0.9}", {"cpu": Demand(0.4, spread=0.2, p95=0.9)}),
        ("cpu_percent: 40", {"cpu": Demand(0.4)}),
        ("cpu_percent: 40\nnet_mbit: 12", {"cpu": Demand(0.4), "net_mbit": Demand(12.0, "net_mbit")}),
        ("demand: {disk_mb_s: {mean: 5, p95: 20}}", {"disk_mb_s": Demand(5.0, "disk_mb_s", p95=20.0)}),
    ],
)
def test_demand_is_read_in_each_form(tmp_path: Path, reported: str, expected: dict[Resource, Demand]) -> None:
    (found,) = load_instances(_reported(tmp_path, reported))
    assert dict(found.demand) == expected


@pytest.mark.parametrize(
    ("reported", "line", "field", "reason"),
    [
        ("cpu: 40", 3, "cpu", "cpu_percent"),
        ("demand: {cpu: 2.5}", 3, "demand", "above its 2 vCPUs"),
        ("demand:\n  cpu:\n    mean: 0.4\n    p95: 0.9\n    p99: 0.5", 7, "demand.cpu.p99", "do not grow"),
        ("demand: {cpu: {spread: 1}}", 3, "demand.cpu", "field mean is missing"),
        ("demand: {cpu: {mean: 1, hours: [1, 2]}}", 3, "demand.cpu.hours", "24 or 168"),
        ("demand: {cpu: -1}", 3, "demand.cpu", "outside"),
        ("demand: {memory: 1}", 3, "demand.memory", "not a known field"),
        ("demand: {cpu: 1}\ncpu_percent: 40", 4, "cpu_percent", "stands beside demand.cpu"),
    ],
)
def test_a_demand_that_is_wrong_is_refused_with_line_and_field(
    tmp_path: Path, reported: str, line: int, field: str, reason: str
) -> None:
    path = _reported(tmp_path, reported)
    with pytest.raises(InvalidInput, match=reason) as caught:
        load_instances(path)
    assert f"{path}, line {line}, field {field}: " in caught.value.message
