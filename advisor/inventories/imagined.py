"""What-if files (YAML or JSON): what is otherwise in a cloud that is only imagined."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.domain import PINNING_POLICIES, WhatIf
from advisor.inventories.document import Item, read_document
from advisor.inventories.static import Reader, _host

READERS: Mapping[str, Reader] = {
    "hosts": lambda item: tuple(_host(host) for host in item.items()),
    "remove": lambda item: tuple(name.text() for name in item.items()),
    "cpu_overcommit": lambda item: item.number(0.01, 1000),
    "memory_overcommit": lambda item: item.number(0.01, 1000),
    "pinning": lambda item: item.choice(PINNING_POLICIES),
    "model": Item.text,
}


def load_what_if(path: Path) -> WhatIf:
    """Read `hosts`, `remove`, `cpu_overcommit`, `memory_overcommit`, `pinning` and `model`, all of them optional;
    InvalidInput names file, line and field."""
    found = read_document(path).mapping(tuple(READERS))
    values: dict[str, Any] = {name: READERS[name](item) for name, item in found.items() if not item.is_null}
    return WhatIf(**values)
