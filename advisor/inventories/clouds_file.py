"""The account of an OpenStack: found by openstacksdk, refused where its file lets others read or change a secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from advisor.plug_ins import require
from profiler.files import MEGABYTE, check_private, open_limited

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
