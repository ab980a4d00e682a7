"""What stands behind the `?` of a page's address: a name that the page does not know is refused, not passed over."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request

from advisor.errors import InvalidInput


def check_names(request: Request, known: Iterable[str]) -> None:
    """InvalidInput (422) unless all that the address asks for is among `known`; values are the handler's to check."""
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        raise InvalidInput(f"this page cannot be asked for {unknown[0][:40]!r}; leave it out", field=unknown[0][:40])
