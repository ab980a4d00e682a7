"""Clouds that a host may name in its label `render`: those of packages that are installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor import plug_ins
from advisor.errors import InvalidInput
from advisor.render import check_labels, commands, migrations
from advisor.render.whole import cloud_tool
from profiler.observed import Host, Instance, IsolationSettings
from tests.servers.packages import installed

EXAMPLE = """
from advisor.domain import Command
from advisor.render.change import Phase, Step

TOOL = "example"
PINS_TRAVEL = False


def steps(change, options):
    yield Step(Phase.PIN, Command(TOOL, ("example", "cap", str(change.desired.cap_percent)), ("example", "free"), ""))


def network(change):
    return iter(())


def migrate(instance, source, target):
    return Command(TOOL, ("example", "move", target.id), ("example", "move", source.id), "")
"""
HOST = Host("h1", "kvm", pcpus=4, memory_mb=8192, labels={"render": "example"})
SHOP = Instance("shop-7", 2)


@pytest.mark.parametrize("name", plug_ins.names(plug_ins.RENDERERS))
def test_every_cloud_that_a_host_may_name_has_commands(name: str) -> None:
    tool = cloud_tool(name)
    host = Host("h1", "kvm", pcpus=4, memory_mb=8192, labels={"render": name})
    check_labels(host)
    (resized,) = migrations.resize(host, SHOP, Instance("shop-7", 1))
    assert resized.tool == tool.TOOL


def test_a_package_that_was_installed_adds_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="not for 'example'"):
        check_labels(HOST)
    installed(tmp_path, monkeypatch, EXAMPLE, {plug_ins.RENDERERS: "example = cotenant_example"})
    check_labels(HOST)
    (cap,) = commands(HOST, SHOP, IsolationSettings(), IsolationSettings(cap_percent=50.0))
    assert (cap.argv, cap.undo) == (("example", "cap", "50.0"), ("example", "free"))
    (moved,) = migrations.move(SHOP, SHOP, HOST, replace(HOST, id="h2"), (), ())
    assert moved.argv == ("example", "move", "h2")


def test_a_cloud_whose_package_is_an_extra_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plug_ins, "_entries", lambda _group: {})
    with pytest.raises(InvalidInput, match=r"proxmox needs a package of its own: pip install 'cotenant\[proxmox\]'"):
        check_labels(Host("h1", "kvm", pcpus=4, memory_mb=8192, labels={"render": "proxmox"}))
