"""Systems are found by their entry points: those of the service, and those of a package that was installed later."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, distribution, entry_points
from pathlib import Path

import pytest

from advisor import plug_ins
from advisor.domain import Inventory
from advisor.errors import InvalidInput
from advisor.inventories import systems
from advisor.inventories.reading import Part, Reading
from advisor.inventories.sync import compare
from advisor.inventories.systems import SourceOptions
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.packages import installed

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = """
from advisor.inventories.reading import Facts, Part, Reading
from advisor.inventories.systems import InventorySystem


class Example:
    def __init__(self, cloud):
        self.name = f"example:{cloud}"

    def read(self):
        return Reading(self.name, (Part("hosts", "read", 0),))


SYSTEM = InventorySystem(Example, takes=("cloud",))
"""


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in which one offers the system `example`, and `broken` names a module that is not there."""
    offered = "example = cotenant_example:SYSTEM\nbroken = cotenant_gone:SYSTEM"
    installed(tmp_path, monkeypatch, EXAMPLE, {plug_ins.INVENTORIES: offered})
    return tmp_path


def test_the_systems_of_all_distributions_of_this_tree_are_there() -> None:
    projects = (ROOT / "pyproject.toml", *(ROOT / "integrations").glob("*/pyproject.toml"))
    named = [
        name
        for project in projects
        for name in tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        .get("entry-points", {})
        .get(plug_ins.INVENTORIES, ())
    ]
    assert {"openstack", "kubernetes"} <= set(named) <= set(systems.sources())


def test_a_package_that_was_installed_adds_a_system(example: Path) -> None:
    database = sqlite_with_tables(example / "db.sqlite3")
    assert "example" in systems.sources()
    assert systems.open_source("example", cloud="west").name == "example:west"  # type: ignore[attr-defined]
    result = cli_runs.run("sync", "example", "--cloud", "west", "--dry-run", "--json", "--database", database)
    assert (result.exit_code, '"example:west"' in result.stdout) == (0, True), result.output


@pytest.mark.usefixtures("example")
def test_an_option_that_a_system_does_not_take_and_a_history_that_it_does_not_keep_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--uri does not go with example, which takes --cloud"):
        systems.open_source("example", options=SourceOptions(uris=("qemu:///system",)))
    with pytest.raises(InvalidInput, match="example keeps no history of its guests"):
        systems.open_history("example")
    assert not systems.is_watched("example")


@pytest.mark.usefixtures("example")
def test_a_package_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(InvalidInput, match="source broken cannot be loaded from cotenant_gone:SYSTEM: No module named"):
        systems.open_source("broken")


def test_an_extra_that_an_entry_point_names_and_that_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, EXAMPLE, {plug_ins.INVENTORIES: "drawn = cotenant_example:SYSTEM [plots]"})
    monkeypatch.setattr(plug_ins, "find_spec", lambda _name: None)
    with pytest.raises(InvalidInput, match=r"drawn needs matplotlib: pip install 'cotenant\[plots\]'"):
        systems.open_source("drawn")


def test_a_system_whose_package_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(group: str) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=group) if entry.name != "proxmox"}

    monkeypatch.setattr(plug_ins, "_entries", without)
    database = sqlite_with_tables(tmp_path / "db.sqlite3")
    for command in ("sync", "history"):
        result = cli_runs.run(command, "proxmox", "--database", database)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].endswith(
            "proxmox needs a package of its own: pip install 'cotenant[proxmox]'"
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gnocchi",), "gnocchi needs a package of its own: pip install 'cotenant[openstack]'"),
        (("aetos",), "aetos needs a package of its own: pip install 'cotenant[openstack]'"),
        (("cadvisor", "--cloud", "a"), "--cloud needs a package of its own: pip install 'cotenant[openstack]'"),
        (("all",), "nor a file that ends in .toml"),
        (("plots",), "nor a file that ends in .toml"),
    ],
)
def test_a_history_whose_package_has_another_name_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(plug_ins, "_entries", lambda _group: {})
    result = cli_runs.run("history", *words, "--database", sqlite_with_tables(tmp_path / "db.sqlite3"))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(said)


def test_what_a_package_offers_is_no_package_that_is_missing() -> None:
    with pytest.raises(InvalidInput, match=r"source 'gnocchi' is none of .*openstack"):
        systems.open_source("gnocchi")


def test_every_name_that_packages_offer_is_found_where_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {(group, name) for group in plug_ins.GROUPS for name in plug_ins.names(group)}
    own = {(each.group, each.name) for each in distribution("cotenant").entry_points}
    monkeypatch.setattr(plug_ins, "_entries", lambda _group: {})
    for group, name in sorted(offered - own):
        with pytest.raises(InvalidInput, match=f"^{name} needs a package of its own: "):
            plug_ins.check_installed(group, name, "source")


def test_another_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"source 'nope' is none of .*kubernetes, libvirt, openstack"):
        systems.open_source("nope")


def test_an_instance_stays_in_the_cloud_whose_name_its_source_has() -> None:
    """Of two clouds in one inventory no plan may move an instance from one to the other."""

    def stored(name: str, before: Inventory) -> Inventory:
        host = {"id": "h", "kind": "kvm", "pcpus": 4, "memory_mb": 1e5}
        parts = (Part("hosts", "read", 1),)
        news = compare(Reading(name, parts, (host,), ({"id": "i", "host": "h", "vcpus": 1},)), before)
        return Inventory(hosts=news.hosts, instances=news.instances)

    named = stored("proxmox:west", Inventory())
    assert named.instances[0].labels["require.source"] == named.hosts[0].labels["source"] == "proxmox:west"
    assert "require.source" not in stored("proxmox", named).instances[0].labels
