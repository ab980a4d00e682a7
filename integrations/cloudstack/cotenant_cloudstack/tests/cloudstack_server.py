"""A management server as far as a read needs it: checks each signature as CloudStack does, and answers in pages.

Shapes are those of HostResponse.java, UserVmResponse.java and ServiceOfferingResponse.java, and of what CloudStack 4.14
and 4.16 answered to the tests of its Go client; the machines are made up.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote

from tests.servers.local_http import QuietHandler, on_loopback

KEY, SECRET = "an-api-key", "a-secret~with*odd-letters"
C1, C2 = "2e4816cf-d8bf-4ef0-993a-05e42078c5a8", "841bb416-2d65-4661-80cf-db708c8a1c4f"
H1, H2, H3 = (f"d9960e4d-5da9-47be-af88-5cd19473b84{number}" for number in (1, 2, 3))
ZONE_POOL = "5a6b1c2d-0000-4000-8000-000000000001"
SMALL, SHAPED = "0a6b1c2d-0000-4000-8000-000000000001", "0a6b1c2d-0000-4000-8000-000000000002"


def host(name: str, uuid: str, cluster: str = C1, **more: Any) -> dict[str, Any]:
    return {
        "id": uuid, "name": name, "state": "Up", "type": "Routing", "ipaddress": "172.16.15.5", "zonename": "z1",
        "podname": "POD0", "zoneid": "zone-1", "podid": "pod-0", "clusterid": cluster, "clustername": "C0",
        "clustertype": "CloudManaged",
        "hypervisor": "KVM", "version": "4.20.0.0", "cpusockets": 2, "cpunumber": 32, "cpuspeed": 2600,
        "cpuallocated": "10.18%", "cpuallocatedvalue": 3256, "cpuused": "23.1%", "cpuwithoverprovisioning": "166400.0",
        "cpuloadaverage": 7.1, "networkkbsread": 32768, "networkkbswrite": 16384, "memorytotal": 137438953472,
        "memorywithoverprovisioning": "1.37438953E11", "memoryallocated": 1610612736, "memoryused": 0,
        "capabilities": "hvm,snapshot", "resourcestate": "Enabled", "hahost": False, "hosttags": "ssd,gold", **more,
    }  # fmt: skip


def machine(number: int, on: str | None = H1, **more: Any) -> dict[str, Any]:
    place = {} if on is None else {"hostid": on, "hostname": "kvm-1"}
    return {
        "id": f"71f43cd6-69b0-4d3b-9fbc-{number:012d}", "name": f"vm-{number}", "displayname": f"vm-{number}",
        "account": "admin", "domain": "ROOT", "state": "Stopped" if on is None else "Running", "haenable": False,
        "serviceofferingid": SMALL, "serviceofferingname": "Small", "cpunumber": 2, "cpuspeed": 1300, "memory": 2048,
        "cpuused": "12.5%", "hypervisor": "KVM", "instancename": f"i-2-{number}-VM", "affinitygroup": [], "tags": [],
        **place, **more,
    }  # fmt: skip


def offering(uuid: str = SMALL, **more: Any) -> dict[str, Any]:
    return {
        "id": uuid, "name": "Small", "cpunumber": 2, "cpuspeed": 1300, "memory": 2048, "networkrate": 0,
        "limitcpuuse": False, "issystem": False, **more,
    }  # fmt: skip


def pool(uuid: str, scope: str, **more: Any) -> dict[str, Any]:
    return {"id": uuid, "name": uuid[-4:], "scope": scope, "state": "Up", "type": "NetworkFilesystem", **more}


def volume(number: int, on: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"81f43cd6-69b0-4d3b-9fbc-{number:012d}", "name": f"ROOT-{number}", "type": "ROOT", "storageid": on,
        "virtualmachineid": machine(number)["id"], "state": "Ready", **more,
    }  # fmt: skip


class Cloud:
    """What the server has, by the name of the list in its answer; `refused` commands answer with that code."""

    def __init__(self) -> None:
        self.host = [host("kvm-1", H1), host("kvm-2", H2), host("kvm-3", H3, C2)]
        self.serviceoffering = [offering()]
        self.virtualmachine = [machine(number) for number in range(3)]
        self.of_projects: list[dict[str, Any]] = []
        self.storagepool = [pool(ZONE_POOL, "ZONE")]
        self.volume = [volume(number, ZONE_POOL) for number in range(3)]
        self.dedicated: dict[str, list[dict[str, Any]]] = {}
        self.refused: dict[str, int] = {}
        self.raw: dict[str, bytes] = {}
        self.page = 500
        self.asked: list[dict[str, str]] = []

    def answer(self, form: dict[str, str]) -> tuple[int, bytes]:
        """Status and body for a call."""
        command = form["command"]
        self.asked.append(form)
        if command in self.raw:
            return 200, self.raw[command]
        code = 401 if form.get("signature") != _signature(form) else self.refused.get(command)
        if code:
            error = {"uuidList": [], "errorcode": code, "cserrorcode": 9999, "errortext": f"no {command}"}
            return code, json.dumps({f"{command.lower()}response": error}).encode()
        item = {
            "listHosts": "host", "listVirtualMachines": "virtualmachine", "listServiceOfferings": "serviceoffering",
            "listStoragePools": "storagepool", "listVolumes": "volume", "listDedicatedHosts": "dedicatedhost",
            "listDedicatedClusters": "dedicatedcluster", "listDedicatedPods": "dedicatedpod",
            "listDedicatedZones": "dedicatedzone",
        }  # fmt: skip
        if form.get("projectid") == "-1":
            rows = self.of_projects if command == "listVirtualMachines" else []
        else:
            rows = self.dedicated.get(item[command], []) if "Dedicated" in command else getattr(self, item[command])
        first = (int(form["page"]) - 1) * self.page
        shown = rows[first : first + self.page]
        inner = {"count": len(rows), item[command]: shown} if shown else {}
        return 200, json.dumps({f"{command.lower()}response": inner}).encode()


def _signature(form: dict[str, str]) -> str:
    """ApiServer.verifyRequest: names in order, values encoded, the whole in small letters."""
    names = sorted((name for name in form if name != "signature"), key=str.lower)
    text = "&".join(f"{name}={_encoded(form[name])}".lower() for name in names)
    return base64.b64encode(hmac.new(SECRET.encode(), text.encode(), hashlib.sha1).digest()).decode()


def _encoded(text: str) -> str:
    """java.net.URLEncoder with %20 for +: letters, digits and .-*_ stay."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char in ".-*_") else quote(char, safe="") for char in text
    ).replace("~", "%7E")


@contextmanager
def serving(cloud: Cloud) -> Iterator[str]:
    """The server on a free port; gives the endpoint."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            status, body = cloud.answer(dict(parse_qsl(self.request_body().decode("ascii"), keep_blank_values=True)))
            self.reply(status, body, {"Content-Type": "application/json;charset=UTF-8"})

    with on_loopback(Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}/client/api"
