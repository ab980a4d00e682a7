"""What the scheduler scripts `place` and `optimize` of OpenNebula 7 share: its documents, and one call to Cotenant.

Standard library only: the scripts run on OpenNebula's front-end, under its own Python. Documents by
share/doc/xsd/scheduler_driver_action.xsd and src/schedm/Plan.cc of OpenNebula 7.
"""

from __future__ import annotations

import base64
import binascii
import configparser
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

MOST_BYTES = 16 * 2**20  # of an answer
ACTIVE, RUNNING = "3", "3"  # include/VirtualMachine.h: VmState and LcmState
PREFIX = "COTENANT_"  # of attributes of user templates that describe a virtual machine


class BridgeError(Exception):
    """Why there is no advice, in one sentence."""


@dataclass(frozen=True)
class BridgeSettings:
    """Where Cotenant is, how long it may take (s), and OpenNebula's own placer."""

    url: str
    token: str
    timeout_s: float
    placer: str
    most_moves: int


@dataclass(frozen=True)
class Vm:
    """A virtual machine that may go to `hosts`; `host` and `datastore` are where it is, None = nowhere."""

    id: int
    hosts: tuple[int, ...]
    host: int | None
    datastore: int | None
    is_running: bool
    body: Mapping[str, Any]


def settings(environment: Mapping[str, str] = os.environ) -> BridgeSettings:
    """From cotenant.conf in OpenNebula's folder of scheduler configurations; BridgeError says what is wrong with it."""
    root = environment.get("ONE_LOCATION")
    folder = f"{root}/etc/schedulers" if root else "/etc/one/schedulers"
    remotes = f"{root}/var/remotes" if root else "/var/lib/one/remotes"
    path = environment.get("COTENANT_OPENNEBULA_CONF", f"{folder}/cotenant.conf")
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(Path(path).read_text(encoding="utf-8"), path)
        section = file["cotenant"]
        token_file = section.get("token_file")
        token = _read_secret(token_file) if token_file else ""
        if not section["url"].startswith(("https://", "http://")):
            raise BridgeError(f"{path}: the url is neither https:// nor http://")
        return BridgeSettings(
            url=section["url"].rstrip("/"),
            token=token,
            timeout_s=section.getfloat("timeout_s", 5.0),
            placer=section.get("placer", f"{remotes}/scheduler/rank/place"),
            most_moves=section.getint("most_moves", 10),
        )
    except (OSError, ValueError, KeyError, configparser.Error) as error:
        raise BridgeError(f"{path} is not readable settings: {type(error).__name__} {error}") from error


def _read_secret(path: str) -> str:
    """The text of a file that only its owner may write and only owner and group may read."""
    with Path(path).open(encoding="ascii") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        if mode & 0o026:
            raise BridgeError(f"{path} is refused because others may read or change it (mode {mode:03o}); chmod 640 it")
        return file.read(MOST_BYTES).strip()


def placer(environment: Mapping[str, str] = os.environ) -> str:
    """OpenNebula's own placer, known even where our settings cannot be read."""
    try:
        return settings(environment).placer
    except BridgeError:
        root = environment.get("ONE_LOCATION")
        return f"{root}/var/remotes/scheduler/rank/place" if root else "/var/lib/one/remotes/scheduler/rank/place"


def read_document(text: str) -> ElementTree.Element:
    """The document that OpenNebula writes on standard input, base64 of XML; BridgeError for anything else."""
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
        document = raw.decode("utf-8")
        if "<!" in document.replace("<![CDATA[", ""):
            raise BridgeError("the document defines a type or entities, which OpenNebula never does")
        root = ElementTree.fromstring(document)  # noqa: S314 - from OpenNebula itself, and without entities
    except (binascii.Error, ValueError, LookupError, ElementTree.ParseError) as error:
        raise BridgeError(f"standard input is no base64 of XML: {error}") from error
    if root.tag != "SCHEDULER_DRIVER_ACTION":
        raise BridgeError(f"the document is a {root.tag[:60]}, not a SCHEDULER_DRIVER_ACTION")
    return root


def write_document(root: ElementTree.Element) -> str:
    """The document as OpenNebula's own placer reads it: one word of base64."""
    return base64.b64encode(ElementTree.tostring(root, encoding="utf-8")).decode("ascii")


def virtual_machines(root: ElementTree.Element) -> list[Vm]:
    """The machines that requirements name, each with its body for Cotenant; one that cannot be read is left out."""
    pool = {vm.findtext("ID"): vm for vm in root.iterfind("VM_POOL/VM")}
    machines = []
    for requirement in root.iterfind("REQUIREMENTS/VM"):
        vm = pool.get(requirement.findtext("ID"))
        try:
            if vm is not None:
                machines.append(_vm(vm, tuple(int(host.text or "") for host in requirement.iterfind("HOSTS/ID"))))
        except ValueError as error:
            log("WARN", f"{requirement.findtext('ID')} is not described as it should be: {error}")
    return machines


def _vm(vm: ElementTree.Element, hosts: tuple[int, ...]) -> Vm:
    number = int(vm.findtext("ID") or "")
    history = vm.findall("HISTORY_RECORDS/HISTORY")
    last = history[-1] if history else None
    host, datastore = (
        None if last is None or not last.findtext(name) else int(last.findtext(name) or "") for name in ("HID", "DS_ID")
    )
    is_running = vm.findtext("STATE") == ACTIVE and vm.findtext("LCM_STATE") == RUNNING
    template = vm.iterfind("USER_TEMPLATE/*")
    attributes = {element.tag: element.text or "" for element in template if element.tag.startswith(PREFIX)}
    vcpus = vm.findtext("TEMPLATE/VCPU")
    body: dict[str, Any] = {
        "ID": number,
        "STATE": "ACTIVE" if is_running else "PENDING",
        "HOST_IDS": list(hosts),
        "CAPACITY": {
            "CPU": float(vm.findtext("TEMPLATE/CPU") or 0),
            "MEMORY": float(vm.findtext("TEMPLATE/MEMORY") or 0) * 1024,
        },
        "VM_ATTRIBUTES": {**attributes, **({"VCPU": vcpus} if vcpus else {})},
    }
    if host is not None and is_running:
        body["HOST_ID"] = host
    return Vm(number, hosts, host, datastore, is_running, body)


def advice(service: BridgeSettings, path: str, body: Mapping[str, Any]) -> dict[int, int]:
    """The host that Cotenant names for each virtual machine; BridgeError on a late or malformed answer, or none."""
    headers = {"Content-Type": "application/json"}
    if service.token:
        headers["Authorization"] = f"Bearer {service.token}"
    content = json.dumps(body).encode()
    request = urllib.request.Request(service.url + path, content, headers)  # noqa: S310 - see settings()
    try:
        with _at_most(service.timeout_s):
            raw = _fetch(request, service.timeout_s)
        if len(raw) > MOST_BYTES:
            raise BridgeError(f"Cotenant's answer is larger than {MOST_BYTES} bytes")
        rows = json.loads(raw)["VMS"]
        host_by_vm = {row["ID"]: row["HOST_ID"] for row in rows if row.get("HOST_ID") is not None}
        for row in rows:
            if row.get("ERROR") is not None:
                log("WARN", f"{row['ID']} is left to OpenNebula's own placer: {row['ERROR']}")
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BridgeError(f"Cotenant gave no answer: {type(error).__name__} {error}") from error
    if not all(type(number) is int for pair in host_by_vm.items() for number in pair):
        raise BridgeError("Cotenant's answer has other values than whole numbers")
    return host_by_vm


def _fetch(request: urllib.request.Request, timeout_s: float) -> bytes:
    """The answer's body, up to one byte more than is allowed; BridgeError for any status but 2xx."""
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            raw: bytes = answer.read(MOST_BYTES + 1)
            return raw
    except urllib.error.HTTPError as error:
        raise BridgeError(f"Cotenant answered with HTTP {error.code}{_detail(error)}") from error


def _detail(error: urllib.error.HTTPError) -> str:
    """The sentence of a problem document (RFC 9457) behind a colon; empty for any other body."""
    try:
        with error:
            detail = json.loads(error.read(MOST_BYTES)).get("detail")
    except (OSError, HTTPException, ValueError, AttributeError, RecursionError):
        return ""
    return f": {detail}" if isinstance(detail, str) else ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would carry the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds in all: a socket's own time limit begins anew with every byte."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def log(level: str, message: str) -> None:
    """Write a line of the driver's log, `LEVEL: message`; OpenNebula reads a number at its start as the id of a VM."""
    sys.stderr.write(f"{level}: {' '.join(message.split())[:500]}\n")
