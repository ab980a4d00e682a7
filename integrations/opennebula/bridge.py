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
SAID = "COTENANT_"  # what user templates may say of a virtual machine begins so


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
    """What a file holds that nobody but its owner may change, and nobody but owner and group may read."""
    with Path(path).open(encoding="ascii") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        if mode & 0o026:
            raise BridgeError(f"{path} is refused because others may read or change it (mode {mode:03o}); chmod 640 it")
        return file.read(MOST_BYTES).strip()


def placer(environment: Mapping[str, str] = os.environ) -> str:
    """OpenNebula's own placer, also where our settings cannot be read."""
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
    """The same document as OpenNebula's own placer reads it: one word of base64."""
    return base64.b64encode(ElementTree.tostring(root, encoding="utf-8")).decode("ascii")


def virtual_machines(root: ElementTree.Element) -> list[Vm]:
    """Those that requirements name, with what Cotenant is told of each; one that makes no sense is left out."""
    pool = {one.findtext("ID"): one for one in root.iterfind("VM_POOL/VM")}
    machines = []
    for wanted in root.iterfind("REQUIREMENTS/VM"):
        vm = pool.get(wanted.findtext("ID"))
        try:
            if vm is not None:
                machines.append(_vm(vm, tuple(int(one.text or "") for one in wanted.iterfind("HOSTS/ID"))))
        except ValueError as error:
            log("WARN", f"{wanted.findtext('ID')} is not described as it should be: {error}")
    return machines


def _vm(vm: ElementTree.Element, hosts: tuple[int, ...]) -> Vm:
    number = int(vm.findtext("ID") or "")
    history = vm.findall("HISTORY_RECORDS/HISTORY")
    last = history[-1] if history else None
    host, datastore = (
        None if last is None or not last.findtext(name) else int(last.findtext(name) or "") for name in ("HID", "DS_ID")
    )
    is_running = vm.findtext("STATE") == ACTIVE and vm.findtext("LCM_STATE") == RUNNING
    attributes = {one.tag: one.text or "" for one in vm.iterfind("USER_TEMPLATE/*") if one.tag.startswith(SAID)}
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


def advice(known: BridgeSettings, path: str, body: Mapping[str, Any]) -> dict[int, int]:
    """Which host Cotenant names for which virtual machine; BridgeError when it does not answer in time or in kind."""
    headers = {"Content-Type": "application/json"}
    if known.token:
        headers["Authorization"] = f"Bearer {known.token}"
    request = urllib.request.Request(known.url + path, json.dumps(body).encode(), headers)  # noqa: S310 - see settings()
    try:
        with _at_most(known.timeout_s):
            raw = _fetched(request, known.timeout_s)
        if len(raw) > MOST_BYTES:
            raise BridgeError(f"Cotenant's answer is larger than {MOST_BYTES} bytes")
        rows = json.loads(raw)["VMS"]
        host_by_vm = {row["ID"]: row["HOST_ID"] for row in rows if row.get("HOST_ID") is not None}
        for row in rows:
            if row.get("ERROR") is not None:
                log("WARN", f"{row['ID']} is left to the own placer: {row['ERROR']}")
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BridgeError(f"Cotenant gave no answer: {type(error).__name__} {error}") from error
    whole = all(type(number) is int for pair in host_by_vm.items() for number in pair)
    if not whole:
        raise BridgeError("Cotenant's answer holds something else than numbers")
    return host_by_vm


def _fetched(request: urllib.request.Request, timeout_s: float) -> bytes:
    """The answer's body, one byte more than is allowed at most; BridgeError for any status but 2xx."""
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
    """A redirect would carry the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds in all: a socket's own limit begins anew with every byte."""

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
    """A line of the driver's log; OpenNebula takes LEVEL: message, one that begins with a number as about that VM."""
    sys.stderr.write(f"{level}: {' '.join(message.split())[:500]}\n")
