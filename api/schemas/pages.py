"""Schemas of answers that are no resource: pages of a listing, problem documents, health."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from api.schemas.base import AnswerBody

T = TypeVar("T")


class PageOut(AnswerBody, Generic[T]):
    """A slice of a listing; `next_cursor` null = the end."""

    items: list[T] = Field(description="what is on this page")
    next_cursor: str | None = Field(default=None, description="give it as `cursor` to get what follows")


class FieldError(AnswerBody):
    """One thing that is wrong in the input."""

    field: str = Field(description="where: path of the field, dots between the steps")
    code: str = Field(description="what kind of error")
    detail: str = Field(description="what is wrong, as a sentence")


class Problem(AnswerBody):
    """An RFC 9457 problem document; `code` is stable, `detail` is for people."""

    type: str = Field(description="where the code is explained, relative to the service")
    title: str = Field(description="the code in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong, as a sentence")
    code: str = Field(description="see docs/reference/errors.md")
    request_id: str = Field(description="as in the answer's X-Request-ID and in the log")
    field: str | None = Field(default=None, description="the part of the input that is wrong, where there is one")
    errors: list[FieldError] = Field(default=[], description="every field that is wrong, at most 20")


class Health(AnswerBody):
    """The process is alive."""

    status: str = Field(description="ok")


class Readiness(AnswerBody):
    """The service can answer questions. Where tokens are needed, `status` is all that it says."""

    status: str = Field(description="ready")
    database: str = Field(default="", description="the kind of database")
    generation: int = Field(default=0, description="of the inventory")
    model: str = Field(default="", description="the version that answers")
    degraded: bool = Field(default=False, description="the active model cannot be read and the analytic model answers")
    snapshot_age_s: float = Field(default=0.0, description="age of the snapshot that answers")
    hosts: int = Field(default=0, description="hosts in the inventory")
