"""The coordinator of a pool as far as a read needs it; no XCP-ng or XenServer ran here.

Records have the fields and types of the Xen API reference; hosts and VMs are made up.
"""

from __future__ import annotations

import ssl
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers.local_http import QuietHandler, on_loopback

USER, PASSWORD = "cotenant", "only looks"
GIB = 1 << 30
NOWHERE = "OpaqueRef:NULL"
POOL, STORE = "22222222-0000-4000-8000-000000000001", "33333333-0000-4000-8000-00000000000"


def host(number: int, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"00000000-0000-4000-8000-00000000000{number}", "name_label": f"Xen {number}", "enabled": True,
        "hostname": f"xen{number}", "metrics": f"OpaqueRef:hm{number}", "address": f"192.0.2.{number}",
        "cpu_info": {"cpu_count": "16", "socket_count": "2", "speed": "2394.454", "modelname": "EPYC", "vendor": "AMD"},
        "software_version": {"product_brand": "XCP-ng", "product_version": "8.3.0", "xen": "4.17.5"}, **more,
    }  # fmt: skip


def vm(number: int, on: int | None = 1, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"11111111-0000-4000-8000-00000000000{number}", "name_label": f"vm{number}", "domid": str(number),
        "power_state": "Running" if on else "Halted", "resident_on": f"OpaqueRef:h{on}" if on else NOWHERE,
        "is_a_template": False, "is_a_snapshot": False, "is_control_domain": False, "VCPUs_max": "4",
        "VCPUs_at_startup": "2", "VCPUs_params": {}, "memory_dynamic_max": str(4 * GIB),
        "memory_static_max": str(8 * GIB), "tags": [], "affinity": NOWHERE, "attached_PCIs": [], "VUSBs": [],
        "VGPUs": [], "other_config": {}, "groups": [], "domain_type": "hvm", "last_boot_CPU_flags": {}, **more,
    }  # fmt: skip


class Pool:
    """What the coordinator answers; `refuses` are calls with the error that comes instead, `raw` with any body."""

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, dict[str, Any]]] = {
            "host": {"OpaqueRef:h1": host(1), "OpaqueRef:h2": host(2, enabled=False)},
            "host_metrics": {
                f"OpaqueRef:hm{number}": {"memory_total": str(64 * GIB), "live": True} for number in (1, 2)
            },
            "VM": {
                "OpaqueRef:v0": vm(0, is_control_domain=True, name_label="Control domain on host: xen1"),
                "OpaqueRef:v1": vm(
                    1, VCPUs_params={"weight": "512", "cap": "150", "mask": "0,1,2,3"}, tags=["web", "prod"]
                ),
                "OpaqueRef:v2": vm(2, 2),
                "OpaqueRef:v3": vm(3, None),
                "OpaqueRef:v4": vm(4, None, is_a_template=True),
            },
            "VIF": {
                "OpaqueRef:i1": {"VM": "OpaqueRef:v1", "qos_algorithm_type": "ratelimit",
                                 "qos_algorithm_params": {"kbps": "12500"}},
                "OpaqueRef:i2": {"VM": "OpaqueRef:v2", "qos_algorithm_type": "", "qos_algorithm_params": {}},
            },
            "PIF": {
                "OpaqueRef:p1": {"host": "OpaqueRef:h1", "physical": True, "metrics": "OpaqueRef:pm1"},
                "OpaqueRef:p2": {"host": "OpaqueRef:h1", "physical": True, "metrics": "OpaqueRef:pm2"},
            },
            "PIF_metrics": {
                "OpaqueRef:pm1": {"speed": "10000", "carrier": True}, "OpaqueRef:pm2": {"speed": "0", "carrier": False},
            },
            "pool": {"OpaqueRef:pool": {"uuid": POOL, "name_label": "", "master": "OpaqueRef:h1"}},
            "SR": {
                "OpaqueRef:sr0": {"uuid": f"{STORE}0", "name_label": "NFS", "shared": True, "type": "nfs",
                                  "VDIs": ["OpaqueRef:d1", "OpaqueRef:d2"]},
            },
            "PBD": {
                f"OpaqueRef:pb{number}": {"host": f"OpaqueRef:h{number}", "SR": "OpaqueRef:sr0",
                                          "currently_attached": True} for number in (1, 2)
            },
            "VBD": {
                f"OpaqueRef:b{number}": {"VM": f"OpaqueRef:v{number}", "VDI": f"OpaqueRef:d{number}", "empty": False,
                                         "type": "Disk"} for number in (1, 2)
            },
            "network": {"OpaqueRef:n1": {"uuid": f"{STORE}9", "name_label": "Pool-wide network 0"}},
            "VM_group": {},
        }  # fmt: skip
        self.refuses: dict[str, list[str]] = {}
        self.raw: dict[str, bytes] = {}
        self.sessions: set[str] = set()
        self.tasks: dict[str, dict[str, Any]] = {}
        self.asks_left = 3  # questions about a task for which it goes on
        self.fails: list[str] = []  # with what migrations end
        self.asked: list[str] = []

    def answer(self, body: bytes) -> bytes:
        arguments, name = xmlrpc.client.loads(body)
        self.asked.append(str(name))
        if name in self.raw:
            return self.raw[str(name)]
        reported: dict[str, Any] = {"Status": "Success"}
        if name in self.refuses:
            reported = {"Status": "Failure", "ErrorDescription": self.refuses[str(name)]}
        elif name == "session.login_with_password":
            if arguments[:2] == (USER, PASSWORD):
                self.sessions.add(reference := f"OpaqueRef:s{len(self.asked)}")
                reported["Value"] = reference
            else:
                reported = {
                    "Status": "Failure",
                    "ErrorDescription": ["SESSION_AUTHENTICATION_FAILED", str(arguments[0])],
                }
        elif arguments[0] not in self.sessions:
            reported = {"Status": "Failure", "ErrorDescription": ["SESSION_INVALID", str(arguments[0])]}
        elif name == "session.logout":
            self.sessions.discard(str(arguments[0]))
            reported["Value"] = ""
        elif not str(name).endswith(".get_all_records"):
            reported = self.changed(str(name), list(arguments[1:]))
        else:
            reported["Value"] = self.classes[str(name).removesuffix(".get_all_records")]
        return xmlrpc.client.dumps((reported,), methodresponse=True).encode()

    def changed(self, name: str, arguments: list[Any]) -> dict[str, Any]:
        """Calls about one object; a task is over after so many questions."""
        vms, hosts = self.classes["VM"], self.classes["host"]
        for task in self.tasks.values():
            if task["status"] == "pending" and name == "VM.get_record":
                task["left"] -= 1
                if task["left"] <= 0:
                    self.end(task)
        value: Any = ""
        match name:
            case "VM.get_by_uuid":
                value = next((one for one, record in vms.items() if record["uuid"] == arguments[0]), None)
                if value is None:
                    return {"Status": "Failure", "ErrorDescription": ["UUID_INVALID", "VM", arguments[0]]}
            case "VM.get_record":
                value = vms[arguments[0]]
            case "Async.VM.pool_migrate":
                vm, host, options = arguments
                if vms[vm].get("current_operations"):
                    return {"Status": "Failure", "ErrorDescription": ["OTHER_OPERATION_IN_PROGRESS", "VM", vm]}
                assert options == {"live": "true"}
                value = f"OpaqueRef:t{len(self.tasks)}"
                vms[vm]["current_operations"] = {value: "pool_migrate"}
                self.tasks[value] = {"vm": vm, "host": host, "status": "pending", "left": self.asks_left, "error": []}
            case "task.get_status":
                value = self.tasks[arguments[0]]["status"]
            case "task.get_error_info":
                value = self.tasks[arguments[0]]["error"]
            case "task.cancel":
                task = self.tasks[arguments[0]]
                task |= {"status": "cancelled", "error": ["TASK_CANCELLED", arguments[0]]}
                vms[task["vm"]]["current_operations"] = {}
            case "host.disable" | "host.enable":
                hosts[arguments[0]]["enabled"] = name == "host.enable"
            case _:
                return {"Status": "Failure", "ErrorDescription": ["MESSAGE_METHOD_UNKNOWN", name]}
        return {"Status": "Success", "Value": value}

    def end(self, task: dict[str, Any]) -> None:
        vm = self.classes["VM"][task["vm"]]
        vm["current_operations"] = {}
        task |= {"status": "failure" if self.fails else "success", "error": list(self.fails)}
        if not self.fails:
            vm["resident_on"] = task["host"]


@contextmanager
def serving(pool: Pool, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of the coordinator, for as long as the block runs."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.reply(200, pool.answer(self.request_body()))

    with on_loopback(Handler, tls) as server:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
