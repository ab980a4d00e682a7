"""Read-only calls of XAPI, which are XML-RPC over HTTPS (Xen API reference, "Wire protocol for remote API calls")."""

from __future__ import annotations

import os
import xmlrpc.client as rpc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from xml.parsers.expat import ExpatError

import requests
from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped] # it brings no types
from defusedxml.xmlrpc import DefusedExpatParser  # type: ignore[import-untyped]

from advisor.inventories.accounts import given_account, is_base
from advisor.inventories.certificates import check_certificate, first_cause, session, verified_by

TIMEOUT_S = 30.0
MOST_BYTES = 64 << 20  # a pool of 64 hosts and 4,096 VMs answers with about 20 MB
INI = Path("~/.xenserver.ini")  # a section per pool
_VARIABLE = "XENSERVER_"  # XENSERVER_HOST, _USER and _PASSWORD, as Ansible's modules for XenServer name them
_VERSION, _ORIGIN = "1.0", "cotenant"
_MAY_NOT = frozenset({"SESSION_AUTHENTICATION_FAILED", "RBAC_PERMISSION_DENIED", "SESSION_INVALID"})
Records = Mapping[str, Mapping[str, Any]]


class XapiError(Exception):
    """A call that was refused or not answered; `refused` where the user may not make it."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class XapiAccount:
    """The pool's coordinator, who asks, and by what its certificate is known."""

    url: str
    user: str
    password: str
    ca_file: Path | None = None
    fingerprint: str | None = None

    def __repr__(self) -> str:
        return f"XapiAccount({self.url!r}, {self.user!r})"


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
    given = given_account(
        cloud, ("host", "user", "password"), ("ca_file", "fingerprint"), variable=_VARIABLE, environment=environment,
        ini=ini,
    )  # fmt: skip
    url = given["host"] if "://" in given["host"] else f"https://{given['host']}"
    if not is_base(url):
        raise ValueError("the host is not a name or an address like https://xen1.example.org")
    ca_file = ca_file or (Path(given["ca_file"]) if given.get("ca_file") else None)
    fingerprint = fingerprint or given.get("fingerprint") or None
    check_certificate(ca_file, fingerprint)
    return XapiAccount(url.rstrip("/"), given["user"], given["password"], ca_file, fingerprint)


class XapiSession:
    """Context manager: logged in at the coordinator of a pool, and out at the end. For one thread."""

    def __init__(self, asking: XapiAccount) -> None:
        self._asking = asking
        self._session = session(asking.fingerprint)
        self._verify = verified_by(asking.ca_file, asking.fingerprint)
        self._reference = ""

    def __enter__(self) -> XapiSession:
        asking = self._asking
        told = self._call("session.login_with_password", asking.user, asking.password, _VERSION, _ORIGIN)
        if not isinstance(told, str):
            raise XapiError("session.login_with_password: no session")
        self._reference = told
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("session.logout", self._reference)
        except XapiError:
            pass  # XAPI forgets sessions by itself
        finally:
            self._session.close()

    def records(self, of: str) -> Records:
        """All records of a class, such as `VM`, by reference."""
        name = f"{of}.get_all_records"
        found = self._call(name, self._reference)
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise XapiError(f"{name}: no records")
        return found

    def _call(self, name: str, *arguments: str) -> Any:
        told = _unpacked(name, self._post(name, rpc.dumps(arguments, name).encode()))
        if told.get("Status") == "Success" and "Value" in told:
            return told["Value"]
        reason = [str(one) for one in told.get("ErrorDescription") or ["no reason"]]
        if reason[0] == "HOST_IS_SLAVE":
            raise XapiError(f"{name}: this is no coordinator of a pool; ask {' '.join(reason[1:2])[:100]}")
        said = _printable(" ".join(reason[: 1 if reason[0] in _MAY_NOT else 3]))
        raise XapiError(f"{name}: {said}"[:200], refused=reason[0] in _MAY_NOT)

    def _post(self, name: str, body: bytes) -> bytes:
        answer = b""
        try:
            with self._session.post(
                f"{self._asking.url}/", body, headers={"Content-Type": "text/xml"}, timeout=TIMEOUT_S,
                allow_redirects=False, verify=self._verify, stream=True,
            ) as response:  # fmt: skip
                for part in response.iter_content(1 << 16):
                    answer += part
                    if len(answer) > MOST_BYTES:
                        raise XapiError(f"{name}: an answer of more than {MOST_BYTES >> 20} MB")
        except (requests.RequestException, OSError, ValueError) as error:
            where = urlsplit(self._asking.url).netloc
            raise XapiError(f"{name}: no answer of {where}: {first_cause(error)}"[:200]) from None
        if response.status_code != 200:
            raise XapiError(f"{name}: HTTP {response.status_code} {_printable(str(response.reason))}"[:200])
        return answer


def _unpacked(name: str, body: bytes) -> Mapping[str, Any]:
    reader = rpc.Unmarshaller()
    try:
        parser = DefusedExpatParser(reader)
        parser.feed(body)
        parser.close()
        (told,) = cast(tuple[Any, ...], reader.close())
    except (ExpatError, DefusedXmlException, rpc.Error, ValueError, TypeError, IndexError, KeyError, OverflowError):
        raise XapiError(f"{name}: HTTP 200 and no answer of XAPI's") from None
    if not isinstance(told, dict):
        raise XapiError(f"{name}: HTTP 200 and no answer of XAPI's")
    return told


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
