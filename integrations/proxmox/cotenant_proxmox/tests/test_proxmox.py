"""Proxmox VE: what nodes and guests become, what is asked again, and what is said where something is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from cotenant_proxmox.facts import RULE_LABELS
from cotenant_proxmox.source import Proxmox
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, guest, node, serving
from hypothesis import given
from hypothesis import strategies as st

from advisor.inventories.calls import CallError
from advisor.inventories.reading import STOPPED_LOAD, Reading
from advisor.service import Advisor
from profiler.observed import NetworkSettings
from tests.servers.certificates import certified


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def source(cluster: Cluster) -> Iterator[Proxmox]:
    with serving(cluster) as endpoint:
        yield Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(endpoint, TOKEN)), whole_every=3)


def _one(reading: Reading, name: str) -> dict[str, Any]:
    return next(dict(one) for one in (*reading.hosts, *reading.instances) if one["id"] == name)


def test_nodes_and_guests_become_facts_and_templates_are_no_guests(source: Proxmox, cluster: Cluster) -> None:
    cluster.guests.append(guest(9000, template=1))
    reading = source.read()
    assert (reading.complete, reading.left_out) == (True, ())
    assert [one["id"] for one in reading.instances] == ["100", "101"]
    host, vm, container = _one(reading, "pve1"), _one(reading, "100"), _one(reading, "101")
    assert (host["pcpus"], host["threads_per_core"], host["cpu_mhz"], host["memory_mb"]) == (16, 2, 2994.37, 65536)
    assert (vm["host"], vm["vcpus"], vm["memory_mb"]) == ("pve1", 4, 4096)
    assert vm["settings"]["cap_percent"] == 300
    assert vm["settings"]["network"] == NetworkSettings("dedicated", 100.0)
    assert vm["settings"]["disk_limit_mb_s"] == 150
    assert str(vm["settings"]["pinning"]) == "0:0-3|1:0-3|2:0-3|3:0-3"
    assert {"name": "vm100", "guest": "qemu/100", "pool": "shop", "tag.web": "true"}.items() <= vm["labels"].items()
    assert (container["host"], container["vcpus"], container["labels"]["guest"]) == ("pve2", 2, "lxc/101")


@pytest.mark.parametrize(
    ("disks", "limit"),
    [
        ({"scsi0": "a:1,mbps_rd=100"}, None),
        ({"scsi0": "a:1,mbps_rd=100,mbps_wr=0"}, None),
        ({"scsi0": "a:1,mbps_rd=100,mbps_wr=50", "scsi1": "a:2"}, None),
        ({"scsi0": "a:1,mbps_rd=100,mbps_wr=50", "virtio1": "a:2,mbps_rd=5,mbps_wr=2"}, 157),
    ],
)
def test_a_guest_has_a_disk_limit_where_each_way_of_each_disk_is_limited(
    disks: dict[str, str], limit: float | None, source: Proxmox, cluster: Cluster
) -> None:
    cluster.configs[100] = {name: value for name, value in cluster.configs[100].items() if name != "scsi0"} | disks
    assert _one(source.read(), "100")["settings"]["disk_limit_mb_s"] == limit


@pytest.mark.parametrize(
    ("config", "maxcpu", "vcpus", "cap"),
    [
        ({"cpulimit": "0.5"}, 0.5, 1, 50),
        ({"cpulimit": "2.5"}, 2.5, 3, 250),
        ({"cpulimit": 3}, 3, 3, 300),
        ({"cpulimit": "0.25", "cores": 4}, 4, 4, 25),
        ({"cores": "3"}, 3, 3, None),
        ({}, 16, 16, None),  # all of the node's
        ({"cpulimit": "0"}, None, 16, None),
        ({"cpulimit": "40"}, 40, 16, 4000),  # more than the node has
    ],
)
def test_a_container_has_the_cpus_that_it_may_use_at_once(
    source: Proxmox, cluster: Cluster, config: dict[str, Any], maxcpu: float | None, vcpus: int, cap: float | None
) -> None:
    cluster.guests[1]["maxcpu"] = maxcpu
    cluster.configs[101] = {"memory": 512, "hostname": "ct", **config}
    reading = source.read()
    assert reading.left_out == ()
    container = _one(reading, "101")
    assert (container["vcpus"], container["settings"]["cap_percent"]) == (vcpus, cap)


@pytest.mark.parametrize(
    ("config", "vcpus", "cap"),
    [
        ({}, 1, None),  # qm.conf: one socket of one core
        ({"sockets": 2}, 2, None),
        ({"cores": 4, "vcpus": 3}, 3, None),
        ({"cores": 2, "cpulimit": "0.5"}, 2, 50),
    ],
)
def test_a_vm_has_the_cpus_that_are_plugged_in(
    source: Proxmox, cluster: Cluster, config: dict[str, Any], vcpus: int, cap: float | None
) -> None:
    cluster.configs[100] = config
    vm = _one(source.read(), "100")
    assert (vm["vcpus"], vm["settings"]["cap_percent"]) == (vcpus, cap)


RULES: list[dict[str, Any]] = [
    {"rule": "db", "type": "node-affinity", "resources": "vm:100,vm:102", "nodes": "pve1:2,pve2:1,pve3:2", "strict": 1},
    {"rule": "any", "type": "node-affinity", "resources": "ct:101", "nodes": "pve2"},
    {"rule": "off", "type": "node-affinity", "resources": "vm:103", "nodes": "pve2", "strict": 1, "disable": 1},
    {"rule": "far", "type": "node-affinity", "resources": "vm:104", "nodes": "pve2", "strict": 1,
     "affinity": "negative"},
    {"rule": "near", "type": "resource-affinity", "resources": "vm:103,vm:104", "affinity": "positive"},
    {"rule": "apart", "type": "resource-affinity", "resources": "vm:100, ct:101", "affinity": "negative"},
    {"rule": "also", "type": "resource-affinity", "resources": "vm:100,vm:102", "affinity": "negative"},
]  # fmt: skip


def test_rules_of_high_availability_become_labels(source: Proxmox, cluster: Cluster, advisor: Advisor) -> None:
    cluster.guests += [guest(number, "pve2") for number in (102, 103, 104)]
    cluster.configs |= {number: {"cores": 1} for number in (102, 103, 104)}
    cluster.rules = RULES

    def rules() -> dict[str, dict[str, str]]:
        advisor.inventory.follow(source.read())
        there = advisor.cloud.inventory().instances
        return {one.id: {name: one.labels[name] for name in one.labels.keys() & RULE_LABELS} for one in there}

    nodes = {"require_any.id": "pve1, pve2, pve3", "prefer_any.id": "pve1, pve3"}
    assert rules() == {
        "100": {**nodes, "anti_affinity": "apart, also"},
        "101": {"prefer_any.id": "pve2", "anti_affinity": "apart"},
        "102": {**nodes, "anti_affinity": "also"},
        "103": {"affinity": "near"},
        "104": {"require_none.id": "pve2", "affinity": "near"},
    }
    cluster.rules = RULES[1:2]
    assert rules() == {**{name: {} for name in ("100", "102", "103", "104")}, "101": {"prefer_any.id": "pve2"}}
    cluster.codes["/cluster/ha/rules"] = 500
    assert rules()["101"] == {"prefer_any.id": "pve2"}


def test_version_8_has_no_such_rules_and_a_read_of_it_is_complete(source: Proxmox, cluster: Cluster) -> None:
    cluster.version = 8
    reading = source.read()
    assert reading.complete
    assert not reading.own_labels & RULE_LABELS, "such labels are an operator's there"


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        ({"hostpci0": "mapping=gpu,pcie=1"}, {"never_move": "true"}),
        ({"usb0": "host=1234:5678"}, {"never_move": "true"}),
        ({"usb0": "spice"}, {}),
        ({"scsi0": "local-lvm:vm-100-disk-0,size=32G"}, {"local_storage": "true"}),
        ({"scsi0": "ceph:vm-100-disk-0,size=32G"}, {}),
        ({"scsi0": "ceph:vm-100-disk-0", "ide2": "local-lvm:iso/a.iso,media=cdrom"}, {}),
    ],
)
def test_devices_that_are_passed_and_disks_on_the_node_become_labels(
    source: Proxmox, cluster: Cluster, config: dict[str, str], labels: dict[str, str]
) -> None:
    cluster.guests += [
        {"type": "storage", "id": f"storage/pve1/{name}", "node": "pve1", "storage": name, "shared": shared}
        for name, shared in (("local-lvm", 0), ("ceph", 1))
    ]
    cluster.configs[100] = {"cores": 2, **config}
    found = _one(source.read(), "100")["labels"]
    assert {name: found[name] for name in found.keys() & {"never_move", "local_storage"}} == labels


def test_a_shared_storage_that_some_nodes_lack_is_a_rule_of_the_guests_on_it(
    source: Proxmox, cluster: Cluster, advisor: Advisor
) -> None:
    cluster.nodes.append(node("pve3"))
    cluster.guests += [
        {"type": "storage", "id": f"storage/{on}/{name}", "node": on, "storage": name, "shared": 1}
        for name, nodes in (("ceph", ("pve1", "pve2", "pve3")), ("nfs", ("pve1", "pve3")))
        for on in nodes
    ]
    cluster.configs[100] = {"cores": 2, "scsi0": "ceph:vm-100-disk-0", "scsi1": "nfs:100/vm-100-disk-1.raw"}
    reading = source.read()
    labels = _one(reading, "100")["labels"]
    assert {name for name in labels if name.startswith("require")} == {"require.storage.nfs"}
    assert [("storage.nfs" in _one(reading, f"pve{at}")["labels"]) for at in (1, 2, 3)] == [True, False, True]
    advisor.inventory.follow(reading)
    cluster.configs[100].pop("scsi1")
    cluster.guests[0]["name"] = "changed"  # its row differs, so that its config is read again
    advisor.inventory.follow(source.read())
    assert not any(name.startswith("require") for name in advisor.inventory.instance("100").labels)


def test_an_affinity_beyond_the_node_is_said_and_all_else_is_taken(
    source: Proxmox, cluster: Cluster, advisor: Advisor
) -> None:
    cluster.guests += [guest(102, "pve2"), guest(103, "pve2")]
    cluster.configs |= {102: {"cores": 2, "affinity": "16-31"}, 103: {"cores": 2, "affinity": "0-3,16-19"}}
    news = advisor.inventory.follow(source.read())
    there = {one.id: one.settings.pinning for one in advisor.cloud.inventory().instances}
    assert there.keys() == {"100", "101", "102", "103"}
    assert (there["102"], str(there["103"])) == (None, "0:0-3|1:0-3")
    assert [sentence.split()[1] for sentence in news.left_out] == ["102", "103"]
    assert {one.id for one in advisor.cloud.inventory().hosts} == {"pve1", "pve2"}


def test_a_guest_moves_changes_stops_and_vanishes(source: Proxmox, cluster: Cluster, advisor: Advisor) -> None:
    advisor.inventory.follow(source.read())
    cluster.guests[0] |= {"node": "pve2", "maxcpu": 8}
    cluster.configs[100]["cores"] = 4
    cluster.guests[1]["status"] = "stopped"
    advisor.inventory.follow(source.read())
    there = {one.id: one for one in advisor.cloud.inventory().instances}
    assert (there["100"].host, there["100"].vcpus) == ("pve2", 8)
    assert there["101"].load == STOPPED_LOAD
    del cluster.guests[0]
    advisor.inventory.follow(source.read())
    assert {one.id for one in advisor.cloud.inventory().instances} == {"101"}


def test_a_node_that_is_offline_stays_with_its_guests(source: Proxmox, cluster: Cluster, advisor: Advisor) -> None:
    advisor.inventory.follow(source.read())
    cluster.nodes[1] = {"type": "node", "id": "node/pve2", "node": "pve2", "status": "offline"}
    cluster.guests[1]["status"] = "unknown"
    news = advisor.inventory.follow(source.read())
    assert "node pve2: it is offline; the host stays as it is" in news.left_out
    found = advisor.cloud.inventory()
    assert {one.id for one in found.hosts} == {"pve1", "pve2"}
    assert {one.id for one in found.instances} == {"100", "101"}


def test_a_config_is_asked_again_when_its_row_changed_or_the_read_is_whole(source: Proxmox, cluster: Cluster) -> None:
    def configs() -> list[str]:
        cluster.asked.clear()
        assert source.read().complete
        return sorted(path for path in cluster.asked if path.endswith("/config"))

    everyone = ["/nodes/pve1/qemu/100/config", "/nodes/pve2/lxc/101/config"]
    assert configs() == everyone
    cluster.guests[0]["maxmem"] *= 2
    assert configs() == everyone[:1]
    assert configs() == []
    assert configs() == everyone


def test_guests_of_a_named_cluster_do_not_meet_those_of_another(cluster: Cluster) -> None:
    with serving(cluster) as endpoint:
        reading = Proxmox("west", open_api=lambda: ProxmoxApi(ProxmoxAccount(endpoint, TOKEN))).read()
    assert reading.source == "proxmox:west"
    assert [(one["id"], one["host"]) for one in reading.instances] == [
        ("west:100", "west:pve1"), ("west:101", "west:pve2"),
    ]  # fmt: skip


def test_a_wrong_token_is_reported_as_refused(cluster: Cluster) -> None:
    with serving(cluster) as endpoint:
        (part,) = Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(endpoint, "a@b!c=d"))).read().parts
    assert (part.state, part.name) == ("refused", "resources")


def test_a_guest_whose_config_is_refused_stays(source: Proxmox, cluster: Cluster) -> None:
    cluster.codes["/nodes/pve1/qemu/100/config"] = 403
    reading = source.read()
    assert reading.unclear == {"100"}
    assert {part.name: part.state for part in reading.parts}["guests"] == "refused"


@pytest.mark.parametrize("path", ["/cluster/resources", "/nodes/pve1/status", "/nodes/pve1/qemu/100/config"])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"data": 1}', b'{"data": [1]}', b"[" * 100_000])
def test_an_answer_that_is_none_is_a_part_that_failed(
    source: Proxmox, cluster: Cluster, path: str, body: bytes
) -> None:
    cluster.raw[path] = body
    reading = source.read()
    assert "failed" in {part.state for part in reading.parts}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_NODE_FIELDS, _GUEST_FIELDS = sorted(node("a")), sorted(guest(1))
_CONFIG_FIELDS = ["cores", "sockets", "vcpus", "cpulimit", "affinity", "net0", "scsi0", "smbios1", "name", "ostype"]


class _Anything:
    """An ProxmoxApi whose every answer has any values."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self._cluster = Cluster()
        self._changes = changes

    def get(self, path: str) -> Any:
        if path == "/cluster/resources":
            names = [self._cluster.nodes[0], self._cluster.guests[0]]
            rows = [{**row, **{name: self._changes[name] for name in row.keys() & self._changes}} for row in names]
            return [*rows, self._cluster.nodes[1], *self._cluster.guests]
        status, body = self._cluster.answer(path)
        if status != 200:
            raise CallError(path)
        data = json.loads(body)["data"]
        return [{**RULES[0], **self._changes}] if isinstance(data, list) else {**data, **self._changes}


@given(st.dictionaries(st.sampled_from(_NODE_FIELDS + _GUEST_FIELDS + _CONFIG_FIELDS + ["cpuinfo"]), _VALUES))
def test_whatever_it_answers_reading_never_raises(changes: dict[str, Any]) -> None:
    reading = Proxmox(open_api=lambda: _Anything(changes)).read()  # type: ignore[arg-type,return-value]
    assert reading.parts


def test_its_certificate_is_verified_by_a_ca_file_or_a_fingerprint(cluster: Cluster, tmp_path: Path) -> None:
    tls, pem, fingerprint = certified(tmp_path)
    with serving(cluster, tls) as endpoint:
        wrong = "0" * len(fingerprint)
        states = [
            Proxmox(open_api=lambda asking=asking: ProxmoxApi(asking)).read().complete  # type: ignore[misc]
            for asking in (
                ProxmoxAccount(endpoint, TOKEN),
                ProxmoxAccount(endpoint, TOKEN, fingerprint=wrong),
                ProxmoxAccount(endpoint, TOKEN, fingerprint=fingerprint),
                ProxmoxAccount(endpoint, TOKEN, ca_file=pem),
            )
        ]
    assert states == [False, False, True, True]
