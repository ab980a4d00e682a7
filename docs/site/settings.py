"""The page of settings, from the fields of `advisor.settings.Settings`."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from advisor.settings import Settings
from docs.site.tables import capital, code, made_by, prose, table

_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
_LIMITS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}"}
_EXAMPLE = Path(__file__).resolve().parents[2] / "packaging" / "cotenant.env"


def page() -> str:
    """The whole page."""
    rows = [(code(variable(name)), *_row(field)) for name, field in Settings.model_fields.items()]
    return "\n".join(
        [
            "# Settings\n",
            made_by("`advisor/settings.py`"),
            "The server side reads its settings from environment variables. An option on the command line wins:\n"
            "`cotenant serve --listen` over `COTENANT_LISTEN`. A value that is not accepted ends the command with\n"
            "exit code 2 and names the setting. The profiler and the lab have [options](commands.md) only.\n",
            "Under systemd the variables stand in a file, one `NAME=VALUE` per line, without quotes. The unit in\n"
            "`packaging/` reads `/etc/cotenant/cotenant.env`:\n",
            f"```ini\n{_EXAMPLE.read_text(encoding='utf-8')}```",
            table(("variable", "type", "default", "is"), rows),
        ]
    )


def variable(name: str) -> str:
    """The environment variable of a field."""
    return f"{Settings.model_config['env_prefix']}{name.upper()}"


def _row(field: FieldInfo) -> tuple[str, str, str]:
    return _accepted(field), code(_default(field.default)) or "none", prose(capital(field.description or ""))


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _accepted(field: FieldInfo) -> str:
    limits = (
        text.format(f"{getattr(one, key):,}")
        for one in field.metadata
        for key, text in _LIMITS.items()
        if hasattr(one, key)
    )
    return ", ".join((_type(field.annotation), *limits))


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(code(one) for one in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_type(one) for one in get_args(annotation) if one is not type(None))
    return _WORDS[annotation]
