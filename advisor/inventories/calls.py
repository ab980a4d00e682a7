"""HTTP calls to systems that are read: one error for all of them, answers of bounded size, certificates checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import requests

from advisor.inventories.certificates import ByFingerprint, first_cause
from advisor.inventories.reading import Part


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
