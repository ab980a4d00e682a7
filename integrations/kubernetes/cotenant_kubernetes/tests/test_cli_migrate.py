"""`cotenant migrate kubernetes`: the service plans, the cluster moves, and without --apply nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cotenant_kubernetes import mover
from cotenant_kubernetes.tests.kubernetes_server import TOKEN, ApiServer, Row, guest, launcher, node, serving
from typer.testing import Result

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.demand import Demand, Resource
from tests.api import cli_runs
from tests.servers.service import Service

BUSY: Mapping[Resource, Demand] = {"cpu": Demand(6.0)}


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows two nodes, of which one has three guests that want more CPUs than it has."""
    folder = tmp_path_factory.mktemp("planner")
    database = f"sqlite:///{folder / 'c.sqlite3'}"
    hosts = tuple(Host(name, "kvm", 8, 262_144.0) for name in ("n1", "n2"))
    guests = tuple(
        Instance(uid, 8, host="n1", demand=BUSY, labels={"source": "kubernetes", "guest": f"prod/vm-{uid}"})
        for uid in ("g1", "g2", "g3")
    )
    with Advisor(Settings(database=database)) as advisor:
        advisor.upgrade_database()
        advisor.inventory.put(Inventory(hosts=hosts, instances=guests), mode="replace", generation=None)
    started = Service(database, folder, forked=True).start()
    yield started
    started.running.stop()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setattr(mover, "POLL_S", 0.01)
    with serving() as made:
        made.absent = set()
        for name in ("n1", "n2"):
            made.put("nodes", node(name))
        for uid in ("g1", "g2", "g3"):
            made.put("guests", standing(uid, "n1", "False" if uid == "g3" else "True"))
            made.put("pods", launcher(f"virt-launcher-{uid}", uid, "n1"))
        made.made = lambda row: arrives(made, row)
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path)))
        yield made


def standing(uid: str, on: str, migratable: str = "True") -> Row:
    row = guest(uid, on)
    row["status"]["conditions"] = [{"type": "LiveMigratable", "status": migratable, "message": "its disk is local"}]
    return row


def arrives(api: ApiServer, migration: Row) -> None:
    uid = migration["spec"]["vmiName"].removeprefix("vm-")
    api.put("guests", standing(uid, migration["spec"]["addedNodeSelector"]["kubernetes.io/hostname"]))
    api.put("migrations", {**migration, "status": {"phase": "Succeeded"}})


def migrate(planner: Service, *arguments: str) -> Result:
    return cli_runs.run("migrate", "kubernetes", "--server", planner.url, *arguments)


def test_a_plan_is_said_and_nothing_is_moved_unless_it_is_applied(planner: Service, api: ApiServer) -> None:
    said = migrate(planner)
    assert (said.exit_code, said.stderr, api.sent) == (0, "", [])
    assert "would move prod/vm-g" in said.stdout
    assert "from n1 to n2" in said.stdout
    assert "stays: prod/vm-g3: it cannot move live: its disk is local" in said.stdout
    assert "Nothing was moved" in said.stdout


def test_a_plan_that_is_applied_moves_guests_to_its_nodes(planner: Service, api: ApiServer) -> None:
    done = migrate(planner, "--apply", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    reported = json.loads(done.stdout)
    assert reported["below_after"] < reported["below_before"]
    assert [one["became"] for one in reported["moves"]] == ["done"] * len(reported["moves"])
    assert reported["moves"][0]["request"]["kind"] == "VirtualMachineInstanceMigration"
    assert {one["to"] for one in reported["moves"]} == {"n2"}
    assert len(api.sent) == len(reported["moves"])


def test_nothing_is_planned_while_something_moves_or_no_instance_may(planner: Service, api: ApiServer) -> None:
    no_instance = migrate(planner, "--namespaces", "shop")
    assert "no instance may be moved" in no_instance.stdout
    api.put("migrations", {"metadata": {"name": "m", "namespace": "prod"}, "status": {"phase": "Running"}})
    assert "guests move already" in migrate(planner, "--apply").stdout
    assert api.sent == []


def test_after_a_move_that_failed_the_rest_is_not_tried(planner: Service, api: ApiServer) -> None:
    failed = {"phase": "Failed", "migrationState": {"failureReason": "no memory there"}}

    def fails(row: Row) -> None:
        api.put("migrations", {**row, "status": failed})

    api.made = fails
    done = migrate(planner, "--apply")
    assert done.exit_code == 1
    assert "failed: prod/vm-g" in done.stdout
    assert "no memory there" in done.stdout
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nomad",), "is none of kubernetes"),
        (("kubernetes", "--patience", "soon"), "--patience 'soon' is no time"),
        (("kubernetes", "--every", "1ms"), "no time"),
        (("kubernetes", "--namespaces", " , "), "--namespaces names no namespace"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(arguments: tuple[str, ...], words: str) -> None:
    refused = cli_runs.run("migrate", *arguments, "--server", "http://127.0.0.1:9")
    assert refused.exit_code != 0
    assert words in refused.stderr


def test_without_a_service_it_says_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTENANT_SERVER", raising=False)
    refused = cli_runs.run("migrate", "kubernetes")
    assert "--server or COTENANT_SERVER" in refused.stderr


def test_a_cluster_that_is_away_is_said(planner: Service, api: ApiServer, tmp_path: Path) -> None:
    text = (tmp_path / "config").read_text(encoding="utf-8")
    (tmp_path / "config").write_text(text.replace(TOKEN, "wrong"), encoding="utf-8")
    assert "Kubernetes cannot be asked" in migrate(planner).stderr
