"""Libraries that only some installations have, by the extra of pyproject.toml that installs them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from advisor.errors import InvalidInput

# A module of each library, and its name on the package index.
LIBRARIES: Mapping[str, Mapping[str, str]] = {
    "openstack": {"openstack": "openstacksdk"},
    "otel": {"opentelemetry.sdk": "opentelemetry-sdk"},
    "plots": {"matplotlib": "matplotlib"},
    "postgresql": {"psycopg": "psycopg"},
    "traces": {"pyarrow": "pyarrow"},
    "train": {"lightgbm": "lightgbm", "sklearn": "scikit-learn"},
}


def missing(extra: str) -> tuple[str, ...]:
    """The libraries of an extra that are not installed."""
    return tuple(name for module, name in LIBRARIES[extra].items() if find_spec(module) is None)


def require(extra: str, what: str) -> None:
    """InvalidInput where a library of an extra is not installed: `what` needs it, such as "a replay"."""
    if libraries := missing(extra):
        raise InvalidInput(f"{what} needs {' and '.join(libraries)}: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'cotenant[{extra}]'"
