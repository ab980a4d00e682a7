"""The client of a command, with errors as openstackclient reports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from osc_lib import exceptions

from cotenant_client import Client, CotenantError


@contextmanager
def asking(app: Any) -> Iterator[Client]:
    """The client; CommandError with the service's own words, or why it cannot be asked."""
    try:
        yield app.client_manager.cotenant
    except CotenantError as error:
        raise exceptions.CommandError(str(error)) from error


def ratio(band: Any) -> str:
    """An expected ratio with its range."""
    return f"{band['expected']:.2f} ({band['lower']:.2f}-{band['upper']:.2f})"
