"""Accounts at systems that are read: from the environment, or from a section of a file that only its owner reads."""

from __future__ import annotations

import configparser
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from profiler.files import read_secret

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
