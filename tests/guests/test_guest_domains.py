"""Xen guests of the lab, as far as a host without Xen can show it: xl's commands and configurations, and who is read.

What xl prints here was recorded in the Dom0 that tests/xen boots.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.campaign import Member
from lab.errors import PreparationError, RunError, ToolError
from lab.guests import domain as domains
from lab.guests.domain import Domain, DomainConfig, config_text, connect_from, domain_type
from lab.guests.image import AGENT, BootImage
from lab.guests.renaming_backend import RenamingBackend
from lab.instances import RunSetup
from lab.instances.xen import check_settings
from lab.resource_registry import ResourceRegistry, clean
from lab.schedule import PlacedMember
from lab.workloads import WebWorkload
from profiler.backends.base import Backend, BackendError, Counters, DomainCounters
from profiler.observed import Instance, IsolationSettings

CONFIG = DomainConfig(
    "cotenant-0a1b2c-web.1", "pv", BootImage(Path("/cache/vmlinux"), Path("/cache/initramfs.cpio")), 256, 2, (0, 2, 3),
    IsolationSettings(cap_percent=150.0, weight=512), "10.77.0.10", "cotenant-0a1b2c", 0, Path("/data/a,b/disk-0.raw"),
)  # fmt: skip
RECORDED = json.loads((Path(__file__).parents[1] / "recordings/xen-dom0.json").read_text())["readings"][0]["values"]
(XL_INFO,), (XL_LIST,) = RECORDED["xl info"], RECORDED["xl list -v"]


def _parsed(text: str) -> dict[str, object]:
    """What xl's own reader would make of it: its assignments are Python's."""
    found: dict[str, object] = {}
    exec(compile(text, "domain.cfg", "exec"), {}, found)
    return found


def test_a_domain_is_configured_as_the_run_wants_it() -> None:
    assert _parsed(config_text(CONFIG)) == {
        "name": "cotenant-0a1b2c-web.1",
        "type": "pv",
        "kernel": "/cache/vmlinux",
        "ramdisk": "/cache/initramfs.cpio",
        "extra": "console=hvc0 quiet panic=-1 cotenant.address=10.77.0.10/24",
        "memory": 256,
        "vcpus": 2,
        "cpus": "0,2-3",
        "vif": ["mac=00:16:3e:c0:7e:00,bridge=cotenant-0a1b2c"],
        "disk": ["format=raw,vdev=xvda,access=rw,target=/data/a,b/disk-0.raw"],
        "on_crash": "destroy",
        "on_reboot": "destroy",
        "cap": 150,
        "cpu_weight": 512,
    }


def test_a_domain_without_limits_names_none() -> None:
    found = _parsed(config_text(replace(CONFIG, settings=IsolationSettings(), disk=None)))
    assert {"cap", "cpu_weight", "disk"} & set(found) == set()


@pytest.mark.parametrize("disk", ['/data/"x"', "/data/x\ncap = 1", "/data/\\"])
def test_a_path_cannot_become_another_setting(disk: str) -> None:
    with pytest.raises(PreparationError, match="choose a directory without quotes"):
        config_text(replace(CONFIG, disk=Path(disk)))


def test_domains_use_what_the_cpus_offer() -> None:
    assert domain_type(XL_INFO) == "pv"  # emulated CPUs have no virtualisation
    assert domain_type(XL_INFO.replace(": pv gnttab", ": pv hvm hap gnttab")) == "pvh"
    assert domain_type("") == "pv"


@pytest.fixture
def xl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named xl that keeps its arguments, one call a line, and answers from the recording beside it."""
    tool = tmp_path / "bin" / "xl"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\ncase $1 in list) cat {tmp_path}/list ;; esac\n')
    tool.chmod(0o755)
    (tmp_path / "calls").touch()
    (tmp_path / "list").write_text(XL_LIST)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tmp_path


def test_a_domain_is_created_and_pinned(xl: Path) -> None:
    domain = Domain("cotenant-0a1b2c-web.1", "10.77.0.10", "/run/netns/none")
    domain.create(Path("/data/web.cfg"))
    domain.pin(1, (0, 2, 3))
    assert (xl / "calls").read_text().splitlines() == [
        "create -q /data/web.cfg", "vcpu-pin cotenant-0a1b2c-web.1 1 0,2-3",
    ]  # fmt: skip
    with pytest.raises(RunError, match="is not up"):
        _ = domain.channel


def test_a_domain_that_never_answers_is_an_error_with_its_console(
    xl: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(domains, "BOOT_WITHIN_S", 0.3)
    monkeypatch.setattr(domains, "_CONSOLES", tmp_path)
    (tmp_path / "guest-web.log").write_text("Kernel panic - not syncing\n")
    with pytest.raises(RunError, match=r"domain web did not come up within 0 s: Kernel panic - not syncing"):
        Domain("web", "127.0.0.1", "/run/netns/none").wait_up()


def test_domains_of_a_dead_run_are_destroyed_and_others_are_not(xl: Path) -> None:
    registry = ResourceRegistry(xl / "state")
    name = f"cotenant-{registry.run}-web.1"
    registry.made("domain", name)
    (xl / "list").write_text(XL_LIST.replace("vm1", name))
    for file in (registry._file, registry._host_lock):
        os.close(file)  # as if it had been killed
    assert clean(xl / "state") == [f"domain {name}"]
    assert (xl / "calls").read_text().splitlines() == ["list", f"destroy {name}"]


def test_a_domain_that_is_gone_is_not_destroyed_again(xl: Path) -> None:
    registry = ResourceRegistry(xl / "state")
    registry.made("domain", f"cotenant-{registry.run}-web.1")
    registry.close()
    assert (xl / "calls").read_text().splitlines() == ["list"]


class _Two:
    """A backend with one domain of the lab's and one of another program."""

    name, host = "xen", "dom0"
    closed = False

    def list_instances(self) -> list[Instance]:
        return [Instance("cotenant-0a1b2c-web.1"), Instance("other")]

    def read_counters(self) -> Counters:
        found = {name: DomainCounters(1, {}, cpu_ns=7) for name in ("cotenant-0a1b2c-web.1", "other")}
        return Counters("dom0", 0.0, 0.0, found, None, None, {}, ("other", "cotenant-0a1b2c-cpu.2"))

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        return IsolationSettings(cap_percent=30.0 if instance.id == "cotenant-0a1b2c-web.1" else None)

    def close(self) -> None:
        self.closed = True


def test_only_the_labs_domains_are_read_by_the_names_of_their_instances() -> None:
    below = _Two()
    backend: Backend = RenamingBackend(below, {"cotenant-0a1b2c-web.1": "web.1", "cotenant-0a1b2c-cpu.2": "cpu.2"})
    assert [one.id for one in backend.list_instances()] == ["web.1"]
    counters = backend.read_counters()
    assert {name: one.cpu_ns for name, one in counters.instances.items()} == {"web.1": 7}
    assert counters.vanished == ("cpu.2",)
    assert backend.read_isolation(Instance("web.1")).cap_percent == 30
    with pytest.raises(BackendError, match="other is not one of this run"):
        backend.read_isolation(Instance("other"))
    backend.close()
    assert below.closed


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace in which the loopback device is up."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a network namespace")
    name = f"zz-guests-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_an_agent_is_reached_in_another_network_namespace(namespace: str, tmp_path: Path) -> None:
    home = Path("/proc/thread-self/ns/net").readlink()
    argv = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", "-B", str(AGENT), "7077"]
    agent = subprocess.Popen(argv)
    try:
        domain = Domain("web", "127.0.0.1", f"/run/netns/{namespace}")
        domain.wait_up()
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf/nginx.conf").write_text("daemon off;\n")
        domain.deliver(tmp_path)
        assert domain.channel.call("cat", str(tmp_path / "conf/nginx.conf")) == "daemon off;\n"
        tables = domain.channel.read("/proc/net/tcp")
        domain.close()
    finally:
        agent.kill()
        agent.wait()
    assert ":1BA5 " in tables  # 7077: it is in that namespace
    assert Path("/proc/thread-self/ns/net").readlink() == home
    with pytest.raises(OSError, match="Connection refused"):
        connect_from("/proc/self/ns/net", "127.0.0.1", 7077)


def test_a_namespace_that_is_not_there_is_an_error_and_leaves_no_file_open() -> None:
    """It is asked for five times a second until a domain is up."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        with pytest.raises(OSError, match="No such file"):
            connect_from("/run/netns/nowhere", "127.0.0.1", 1)
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10


def test_a_name_that_is_too_long_for_xen_is_refused_before_anything_is_made() -> None:
    registry: Any = None
    placed = PlacedMember("w" * 201, Member("web", "web", 1.0, 1, IsolationSettings()), (0,), (1,), "solo:web")
    with pytest.raises(PreparationError, match="too long for a domain"):
        check_settings(RunSetup(registry, (placed,), (WebWorkload(1),), Path("/data")))


def test_a_tool_that_is_missing_is_an_error_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="xl cannot be started"):
        Domain("web", "10.77.0.10", "/run/netns/none").pin(0, (0,))
