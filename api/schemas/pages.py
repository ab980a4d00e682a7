"""Schemas of answers that are no resource: pages of a listing, problem documents, health."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from api.schemas.base import AnswerBody

T = TypeVar("T")


class PageOut(AnswerBody, Generic[T]):
    """A slice of a listing; `next_cursor` null = the end."""

    items: list[T]
    next_cursor: str | None = Field(default=None, description="give it as `cursor` to get what follows")


class FieldError(AnswerBody):
    """One thing that is wrong in the input."""

    field: str = Field(description="where: path of the field, dots between the steps")
    code: str
    detail: str


class Problem(AnswerBody):
    """An RFC 9457 problem document; `code` is stable, `detail` is for people."""

    type: str = Field(description="where the code is explained, relative to the service")
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    field: str | None = Field(default=None, description="the part of the input that is wrong, where there is one")
    errors: list[FieldError] = Field(default=[])


class Health(AnswerBody):
    """The process is alive."""

    status: str


class Readiness(AnswerBody):
    """The service can answer questions. Where tokens are needed, `status` is all that it says."""

    status: str
    database: str = ""
    generation: int = 0
    model: str = ""
    degraded: bool = Field(default=False, description="the active model cannot be read and the queueing prior answers")
    snapshot_age_s: float = 0.0
    hosts: int = 0
