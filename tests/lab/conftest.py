"""What the lab's tests share: a folder for what a lab made, and what others own on the same host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.campaign import Campaign, read_campaign
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from tests.lab.campaign_texts import Read
from tests.lab.lab_commands import TINY


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def from_text(text: str) -> Campaign:
        path = tmp_path / "campaign.yaml"
        path.write_text(text, encoding="utf-8")
        return read_campaign(path)

    return from_text


@pytest.fixture
def campaign() -> Campaign:
    """The smallest campaign that has everything."""
    return read_campaign(TINY)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where these tests' labs list what they made; apart from anybody else's."""
    return tmp_path / "state"


@pytest.fixture
def bystanders() -> Iterator[None]:
    """Another program's group, namespace and qdisc, which must be there, unchanged, afterwards."""
    name = f"zz-other-{os.getpid()}"
    group = Path(find_mounts(LiveSource()).get("cpuacct", "/sys/fs/cgroup")) / name
    group.mkdir()
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "handle", "7:", "htb"], check=True)
    before = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    try:
        yield
        assert group.is_dir()
        theirs = subprocess.run(
            ["tc", "-n", name, "qdisc", "show", "dev", "lo"], capture_output=True, text=True, check=True
        )
        assert "htb 7:" in theirs.stdout
        mine = [line for line in before.splitlines() if " dev lo " in line or " dev eth" in line]
        after = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
        assert all(line in after for line in mine)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
        group.rmdir()
