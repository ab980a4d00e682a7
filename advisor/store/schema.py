"""What every table shares: the metadata with its naming convention and the column types; no tables, no statements."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, MetaData, String
from sqlalchemy.types import TypeDecorator

from advisor.domain import codec

metadata = MetaData(
    naming_convention={  # names that later migrations can count on, on every database
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ID = String(255)  # the contract's longest id
VALUE = JSON(none_as_null=True)  # a value object, written by `store.codec`


class UtcTime(TypeDecorator[datetime]):
    """An aware time in UTC; SQLite keeps no zone, so it is taken off on the way in and put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Unreadable where a file was damaged: the text is no time."""
        read = super().result_processor(dialect, coltype)
        if read is None:
            return None

        def checked(value: Any) -> Any:
            try:
                return read(value)
            except (ValueError, TypeError) as error:
                raise codec.Unreadable(f"no time: {error}") from error

        return checked

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
