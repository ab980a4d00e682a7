"""VMs move and settings are written through the API of a stand-in; the ledger's rules are those of all executors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from cotenant_proxmox.executor import Proxmox
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, serving

from advisor.changes.controller import HOST, ChangeFailed, Gone
from advisor.changes.migrations import Waiting
from advisor.domain import Change, Command, Host, Instance, IsolationSettings
from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Pinning

LABELS = {"source": "proxmox:west", "render": "proxmox", "cgroup_version": "2"}
PVE1, PVE2 = (Host(f"west:{name}", "kvm", pcpus=16, memory_mb=65536, labels=LABELS) for name in ("pve1", "pve2"))
VM = Instance("west:100", vcpus=4, host="west:pve1", labels={"source": "proxmox:west", "guest": "qemu/100"})
THERE = {HOST: "west:pve2"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def executor(cluster: Cluster) -> Iterator[Proxmox]:
    with serving(cluster) as url:
        passed = [0.0]

        def sleep(seconds: float) -> None:
            passed[0] += seconds

        waiting = Waiting(60.0, clock=lambda: passed[0], sleep=sleep)
        yield Proxmox(waiting, lambda cloud: ProxmoxApi(ProxmoxAccount(url, TOKEN)))


def move(executor: Proxmox) -> Change:
    meant = executor.moving(VM, PVE1, PVE2)
    return Change(0, "west:pve1", VM.id, meant.kind, "proxmox", meant.target, meant.before, meant.after)


def test_a_vm_moves_once_is_where_it_is_and_comes_back(cluster: Cluster, executor: Proxmox) -> None:
    change = move(executor)
    assert executor.read(change) == {HOST: "west:pve1"}
    executor.write(change, THERE)
    assert cluster.row(100)["node"] == "pve2"
    assert executor.read(change) == THERE
    executor.write(change, THERE)
    assert cluster.migrations == 1
    executor.write(change, {HOST: "west:pve1"})
    assert cluster.row(100)["node"] == "pve1"
    posts = [asked for asked in cluster.asked if asked.startswith("POST")]
    assert posts[0] == "POST /nodes/pve1/qemu/100/migrate {'target': 'pve2', 'online': '1'}"


def test_a_vm_that_moves_already_is_waited_for_and_not_moved_again(cluster: Cluster, executor: Proxmox) -> None:
    cluster.change("POST", "/nodes/pve1/qemu/100/migrate", {"target": "pve2"})
    change = move(executor)
    assert executor.read(change) == THERE
    executor.write(change, THERE)
    assert cluster.migrations == 1


def test_a_migration_that_fails_says_why_and_leaves_the_vm(cluster: Cluster, executor: Proxmox) -> None:
    cluster.fails = "can't migrate VM which uses local devices: hostpci0"
    change = move(executor)
    with pytest.raises(ChangeFailed, match="local devices"):
        executor.write(change, THERE)
    assert executor.read(change) == {HOST: "west:pve1"}


def test_a_migration_that_does_not_end_is_called_off(cluster: Cluster, executor: Proxmox) -> None:
    cluster.asks_left = 10_000
    with pytest.raises(ChangeFailed):
        executor.write(move(executor), THERE)
    assert any(asked.startswith("DELETE") for asked in cluster.asked)
    assert cluster.row(100)["node"] == "pve1"


@pytest.mark.parametrize(("name", "value"), [("status", "stopped"), ("lock", "backup")])
def test_a_vm_in_another_state_is_left_alone(cluster: Cluster, executor: Proxmox, name: str, value: str) -> None:
    cluster.row(100)[name] = value
    with pytest.raises(ChangeFailed, match=value):
        executor.write(move(executor), THERE)
    assert cluster.migrations == 0


def test_a_vm_that_is_gone_and_an_api_that_fails_are_distinguished(cluster: Cluster, executor: Proxmox) -> None:
    change = move(executor)
    cluster.codes["/cluster/resources"] = 500
    with pytest.raises(ChangeFailed, match="500") as failed:
        executor.read(change)
    assert not isinstance(failed.value, Gone)
    cluster.codes.clear()
    cluster.guests = [one for one in cluster.guests if one["vmid"] != 100]
    with pytest.raises(Gone):
        executor.read(change)


def test_an_account_that_may_not_migrate_changes_nothing(cluster: Cluster, executor: Proxmox) -> None:
    cluster.codes["/nodes/pve1/qemu/100/migrate"] = 403
    with pytest.raises(ChangeFailed, match="403"):
        executor.write(move(executor), THERE)
    assert executor.read(move(executor)) == {HOST: "west:pve1"}


def test_a_container_is_not_moved(executor: Proxmox) -> None:
    with pytest.raises(InvalidInput, match="stopped"):
        executor.moving(Instance("west:101", labels={"guest": "lxc/101"}), PVE1, PVE2)


def test_settings_are_written_read_and_brought_back_byte_by_byte(cluster: Cluster, executor: Proxmox) -> None:
    before = dict(cluster.configs[100])
    now = IsolationSettings(cap_percent=300.0, pinning=Pinning.all_on((0, 1, 2, 3), 4))
    wanted = IsolationSettings(weight=512, cap_percent=150.0, pinning=Pinning(((),) * 4))
    made = [command for command in commands(PVE1, VM, now, wanted) if command.argv]
    undo = []
    for command in made:
        meant = executor.meaning(PVE1, command)
        change = Change(0, "west:pve1", VM.id, meant.kind, "proxmox", meant.target, meant.before, meant.after)
        (name,) = meant.after
        found = executor.read(change)
        assert executor.same(name, found[name], meant.before[name])
        executor.write(change, meant.after)
        assert executor.same(name, executor.read(change)[name], meant.after[name])
        undo.append((change, found))
    assert cluster.configs[100] == {
        **{name: value for name, value in before.items() if name != "affinity"}, "cpuunits": "200", "cpulimit": "1.5",
    }  # fmt: skip
    for change, found in reversed(undo):
        executor.write(change, found)
    assert cluster.configs[100] == before


@pytest.mark.parametrize(
    "argv",
    [
        ("pvesh", "set", "/nodes/pve1/qemu/100/config", "--args", "-device x"),
        ("pvesh", "set", "/nodes/pve1/qemu/100/config/../../agent", "--cpuunits", "5"),
        ("pvesh", "create", "/nodes/pve1/qemu/100/config", "--cpuunits", "5"),
    ],
)
def test_other_commands_are_run_by_hand(executor: Proxmox, argv: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="by hand"):
        executor.meaning(PVE1, Command("pvesh", argv, argv))
