"""A host of which the agent changes settings: control groups as files, orders as a thief or the service sends them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiler.acting.actor import ORDERS, Actor
from profiler.acting.allowed import Allowed
from profiler.acting.group_files import GroupFiles
from profiler.acting.orders import Memory, Order, Report, read_report, signed
from profiler.agent.http_client import HttpAnswer
from profiler.agent.loop import Log

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOW = 1_800_000_000.0
ALLOWED = Allowed(("shop-*",), 60, (64.0, 2048.0), (50.0, float("inf")), frozenset({0, 1}))
_FILES = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1", "tasks": ""},
    "cpuset": {"cpuset.cpus": "0-3"},
    "blkio": {"blkio.throttle.read_bps_device": ""},
}


class Wire:
    """A service that hands out what a test puts into `orders`, and keeps what comes back."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, str]] = []
        self.reports: list[Mapping[str, Any]] = []
        self.status = 200

    def post(self, body: bytes, to: str = "") -> HttpAnswer:
        assert to == ORDERS
        self.reports += json.loads(body)["reports"]
        given = [{"text": text, "signature": signature} for text, signature in self.orders]
        self.orders = []
        return HttpAnswer(self.status, json.dumps({"orders": given}).encode(), None)

    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class ActingHost:
    """Host h1 with the containers shop-1 and bank-1, and a group that is no instance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for controller, files in _FILES.items():
            for group in ("lxc/shop-1", "lxc/bank-1", "system/sshd"):
                (folder / controller / group).mkdir(parents=True)
                for name, text in files.items():
                    (folder / controller / group / name).write_text(text)
        self.now = NOW
        self.allowed = ALLOWED
        self.wire = Wire()
        self.log = io.StringIO()
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """The agent starts, as it does after a restart."""
        mounts = {controller: str(self.folder / controller) for controller in _FILES}
        where = {name: ("control-groups", f"lxc/{name}") for name in ("shop-1", "bank-1")}
        self.actor = Actor(
            "h1", self.wire, KEY, lambda: self.allowed, Memory(self.folder / "orders.json"),
            {"control-groups": GroupFiles(mounts)}, where.get, Log(self.log), lambda: self.now,
        )  # fmt: skip

    def order(self, settings: Mapping[str, str], **fields: Any) -> Order:
        """A new order to set these, as a controller makes it."""
        self.number += 1
        made = Order(
            f"{self.number:032x}", "h1", "set", "control-groups", "shop-1", "lxc/shop-1", dict(settings), self.now,
            self.now + 30,
        )  # fmt: skip
        return replace(made, **fields)

    def send(self, order: Order, key: bytes = KEY) -> Report | None:
        """What the agent reports on it; None = nothing."""
        return self.send_text(*signed(order, key))

    def send_text(self, text: str, signature: str) -> Report | None:
        self.wire.orders.append((text, signature))
        self.wire.reports.clear()
        self.actor.step()
        self.actor.step()
        if not self.wire.reports:
            return None
        (last,) = self.wire.reports
        return read_report(last["text"], last["signature"], KEY)

    def text(self, name: str, group: str = "lxc/shop-1") -> str:
        return (self.folder / name.partition(".")[0] / group / name).read_text().strip()

    def everything(self) -> dict[str, str]:
        """Every file of every group."""
        return {
            str(file.relative_to(self.folder)): file.read_text()
            for controller in _FILES
            for file in sorted((self.folder / controller).rglob("*"))
            if file.is_file()
        }
