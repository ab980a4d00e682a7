"""Calls of XAPI, which are XML-RPC over HTTPS (Xen API reference, "Wire protocol for remote API calls")."""

from __future__ import annotations

import os
import xmlrpc.client as rpc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.parsers.expat import ExpatError

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped] # it brings no types
from defusedxml.xmlrpc import DefusedExpatParser  # type: ignore[import-untyped]

from advisor.inventories.calls import CalledServer, CallError, given_account, given_certificate, is_base, printable

TIMEOUT_S = 30.0
MOST_BYTES = 64 << 20  # a pool of 64 hosts and 4,096 VMs answers with about 20 MB
INI = Path("~/.xenserver.ini")  # a section per pool
_VARIABLE = "XENSERVER_"  # XENSERVER_HOST, _USER and _PASSWORD, as Ansible's modules for XenServer name them
_VERSION, _ORIGIN = "1.0", "cotenant"
_MAY_NOT = frozenset({"SESSION_AUTHENTICATION_FAILED", "RBAC_PERMISSION_DENIED", "SESSION_INVALID"})
Records = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class XapiAccount:
    """The pool's coordinator, who asks, and by what its certificate is known."""

    url: str
    user: str
    password: str = field(repr=False)
    ca_file: Path | None = None
    fingerprint: str | None = None


def account(
    cloud: str | None,
    ca_file: Path | None = None,
    fingerprint: str | None = None,
    environment: Mapping[str, str] = os.environ,
    ini: Path = INI,
) -> XapiAccount:
    """From XENSERVER_HOST, _USER, _PASSWORD, _CA_FILE and _FINGERPRINT, or a named section of ~/.xenserver.ini.

    ValueError says what lacks. What is given here counts for more. Plain http is taken to this machine only.
    """
    fields = given_account(
        cloud, ("host", "user", "password"), ("ca_file", "fingerprint"), variable=_VARIABLE, environment=environment,
        ini=ini,
    )  # fmt: skip
    url = fields["host"] if "://" in fields["host"] else f"https://{fields['host']}"
    if not is_base(url):
        raise ValueError("the host is not a name or an address like https://xen1.example.org")
    return XapiAccount(
        url.rstrip("/"), fields["user"], fields["password"], *given_certificate(fields, ca_file, fingerprint)
    )


class XapiSession:
    """Context manager: logged in at the coordinator of a pool, and out at the end. For one thread."""

    def __init__(self, asking: XapiAccount) -> None:
        self._asking = asking
        self._server = CalledServer(
            asking.url, asking.ca_file, asking.fingerprint, most_bytes=MOST_BYTES, timeout_s=TIMEOUT_S
        )
        self._reference = ""

    def __enter__(self) -> XapiSession:
        asking = self._asking
        reference = self._call("session.login_with_password", asking.user, asking.password, _VERSION, _ORIGIN)
        if not isinstance(reference, str):
            raise CallError("session.login_with_password: no session")
        self._reference = reference
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("session.logout", self._reference)
        except CallError:
            pass  # XAPI forgets sessions by itself
        finally:
            self._server.session.close()

    def records(self, of: str) -> Records:
        """All records of a class, such as `VM`, by reference."""
        name = f"{of}.get_all_records"
        records = self._call(name, self._reference)
        if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
            raise CallError(f"{name}: no records")
        return records

    def call(self, name: str, *arguments: Any) -> Any:
        """What a call returns; CallError with XAPI's own words."""
        return self._call(name, self._reference, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        answer = _unpacked(name, self._post(name, rpc.dumps(arguments, name).encode()))
        if answer.get("Status") == "Success" and "Value" in answer:
            return answer["Value"]
        reason = [str(word) for word in answer.get("ErrorDescription") or ["no reason"]]
        if reason[0] == "HOST_IS_SLAVE":
            raise CallError(f"{name}: this is no coordinator of a pool; ask {' '.join(reason[1:2])[:100]}")
        words = printable(" ".join(reason[: 1 if reason[0] in _MAY_NOT else 3]))
        raise CallError(f"{name}: {words}"[:200], refused=reason[0] in _MAY_NOT)

    def _post(self, name: str, body: bytes) -> bytes:
        status, reason, answer = self._server.answer(name, "/", body, "text/xml")
        if status != 200:
            # A refusal is in the answer of XAPI itself; a status is of something on the way.
            raise CallError(f"{name}: HTTP {status} {reason}"[:200])
        return answer


def _unpacked(name: str, body: bytes) -> Mapping[str, Any]:
    reader = rpc.Unmarshaller()
    try:
        parser = DefusedExpatParser(reader)
        parser.feed(body)
        parser.close()
        (answer,) = cast(tuple[Any, ...], reader.close())
    except (ExpatError, DefusedXmlException, rpc.Error, ValueError, TypeError, IndexError, KeyError, OverflowError):
        raise CallError(f"{name}: HTTP 200 and no answer of XAPI's") from None
    if not isinstance(answer, dict):
        raise CallError(f"{name}: HTTP 200 and no answer of XAPI's")
    return answer
