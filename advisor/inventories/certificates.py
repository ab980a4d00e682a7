"""HTTPS to servers that sign their own certificates: known by a CA's file or by a fingerprint, never unverified."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter

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
