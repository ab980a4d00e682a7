"""Calls to systems that are read: accounts, certificates, one error for all of them, answers of bounded size."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from advisor.inventories.reading import Part
from advisor.plug_ins import require
from profiler.files import MEGABYTE, check_private, open_limited, read_secret

# Accounts at systems that are read: from the environment, or from a section of a file that only its owner reads.

LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


def given_account(
    section: str | None,
    needed: Sequence[str],
    further: Sequence[str] = (),
    *,
    variable: str,
    environment: Mapping[str, str],
    ini: Path,
) -> Mapping[str, str]:
    """The fields of an account, of which no `needed` one is empty; ValueError says what lacks, and where.

    Without a section they are in the environment, in upper case behind `variable`.
    """
    if section is None:
        account = {name: environment.get(f"{variable}{name.upper()}", "") for name in (*needed, *further)}
        where = f"the environment ({', '.join(f'{variable}{name.upper()}' for name in needed)})"
    else:
        file = configparser.ConfigParser(interpolation=None)
        try:
            file.read_string(read_secret(ini.expanduser()))
        except configparser.Error:  # whose message shows the line
            raise ValueError(f"{ini} is not sections of name = value") from None
        account = dict(file[section]) if file.has_section(section) else {}
        where = f"section {section} of {ini}"
    missing = [name for name in needed if not account.get(name)]
    if missing:
        raise ValueError(f"{where} names no {' and no '.join(missing)}")
    return account


def keeps_secrets(url: str) -> bool:
    """Whether a secret may go there: by https, or by http to this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)


def is_base(url: str) -> bool:
    """Whether it is an address that calls can be added to, and that secrets may go to."""
    try:
        parts = urlsplit(url)
        return keeps_secrets(url) and bool(parts.hostname) and "@" not in parts.netloc and not parts.query
    except ValueError:
        return False


# HTTPS to servers that sign their own certificates: known by a CA's file or by a fingerprint, never unverified.

_FINGERPRINT = re.compile(r"([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}\Z")


class ByFingerprint(HTTPAdapter):  # type: ignore[misc]  # requests has no types here
    """Knows a server by its certificate alone."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **settings: Any) -> None:
        super().init_poolmanager(*arguments, **settings, assert_fingerprint=self._fingerprint)


def given_certificate(
    account: Mapping[str, str], ca_file: Path | None, fingerprint: str | None
) -> tuple[Path | None, str | None]:
    """By what a server is known: as given, else as its account says. ValueError where that cannot be."""
    ca_file = ca_file or (Path(account["ca_file"]) if account.get("ca_file") else None)
    fingerprint = fingerprint or account.get("fingerprint") or None
    if ca_file is not None and not ca_file.is_file():
        raise ValueError(f"there is no ca_file {ca_file}")
    if fingerprint is not None and not _FINGERPRINT.match(fingerprint):
        raise ValueError("the fingerprint is not SHA-256 in hex digits")
    return ca_file, fingerprint


def first_cause(error: BaseException) -> str:
    """What the system said; requests and urllib3 put more errors around it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


class CallError(Exception):
    """A call that was refused or not answered; `status` 0 = not at all, `refused` = the account may not ask."""

    def __init__(self, message: str, status: int = 0, *, refused: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.refused = refused or status in {401, 403}


def failed_part(name: str, error: CallError) -> Part:
    """The part of a reading that such a call was for."""
    return Part(name, "refused" if error.refused else "failed", reason=str(error))


def printable(text: object) -> str:
    """What another system wrote, without what breaks a line."""
    return "".join(char for char in str(text) if char.isprintable())


class CalledServer:
    """One server, known by a CA's file or a fingerprint; redirects are not followed."""

    def __init__(
        self, url: str, ca_file: Path | None, fingerprint: str | None, *, most_bytes: int, timeout_s: float
    ) -> None:
        self.session = requests.Session()
        if fingerprint:
            self.session.mount("https://", ByFingerprint(fingerprint))
        self._url = url
        self._verify = str(ca_file) if ca_file else fingerprint is None
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s

    def answer(
        self, what: str, path: str, body: bytes | Mapping[str, str] | None = None, kind: str = "", method: str = ""
    ) -> tuple[int, str, bytes]:
        """Status, reason and body of GET, of POST where there is a body, or of `method`; CallError names `what` was
        asked."""
        content = b""
        try:
            with self.session.request(
                method or ("GET" if body is None else "POST"),
                self._url + path,
                data=body,
                headers={"Content-Type": kind} if kind else None,
                timeout=self._timeout_s,
                allow_redirects=False,
                verify=self._verify,
                stream=True,
            ) as response:
                for part in response.iter_content(1 << 16):
                    content += part
                    if len(content) > self._most_bytes:
                        raise CallError(f"{what}: an answer of more than {self._most_bytes >> 20} MB")
        except (requests.RequestException, OSError, ValueError) as error:
            where = urlsplit(self._url).netloc.rpartition("@")[2]
            raise CallError(f"{what}: no answer of {where}: {first_cause(error)}"[:200]) from None
        return response.status_code, printable(response.reason), content


# The account of an OpenStack: found by openstacksdk, refused where its file lets others read or change a secret.

_SECRET = re.compile(r"""(?i)(password|secret|passcode|token)["']?\s*:""")  # a key of YAML or JSON


def read_settings() -> Any:
    """openstacksdk's OpenStackConfig of `clouds.yaml`, `secure.yaml` and `OS_*`. ValueError names a file that is open.

    A `clouds.yaml` without secrets may be read by all, as is common, and changed by its owner only: it says which
    servers to trust. InvalidInput where openstacksdk is not installed.
    """
    require("openstack", "OpenStack")
    from openstack.config import OpenStackConfig

    settings = OpenStackConfig()
    for name in (settings.config_filename, settings.secure_config_filename):
        if name:
            _check(Path(name))
    return settings


def _check(path: Path) -> None:
    with open_limited(path, MEGABYTE, packed=False) as file:
        text = file.read().decode("utf-8", errors="replace")
    check_private(path, path.stat().st_mode, secret=_SECRET.search(text) is not None)
