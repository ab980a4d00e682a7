"""The header `Idempotency-Key`: a question that is sent again with its key gets the same answer again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from advisor.errors import AdvisorError, InvalidInput, StorageLocked
from advisor.service import Idempotency, KeptAnswer, actor

REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[!-~]{1,255}")
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="any word of the caller's own, such as a UUID: within 24 hours the same question with it gets the "
        f"same answer, marked by `{REPLAYED}`",
        json_schema_extra={"pattern": "^[!-~]{1,255}$"},
    ),
]


@dataclass(frozen=True, slots=True)
class AnswerOnce:
    """Answers a question once under the caller's key; repeated, it gets the stored answer."""

    stored: Idempotency
    key: str | None
    target: str  # method, path and query of the request

    def __call__(self, body: BaseModel, work: Callable[[], Response], *, holds: bool) -> Response:
        """The answer of `work`, or the stored one to the same question; failures are not stored.

        One that `holds` nothing is answered without its key while another writer keeps the database. KeyReused where
        the key was used for another question, KeyInUse while this one is being worked on.
        """
        if self.key is None:
            return work()
        if not _KEY.fullmatch(self.key):
            raise InvalidInput("a key is 1-255 visible ASCII characters without blanks", field="idempotency-key")
        question = json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        begin = self.stored.begin if holds else self.stored.begin_hastily
        use = begin(actor(), self.key, f"{self.target}\n{question}")
        if use is None:
            return work()
        if isinstance(use, KeptAnswer):
            headers = {REPLAYED: "true"} | ({"Location": use.path} if use.path else {})
            return Response(use.body, headers=headers, media_type="application/json")
        try:
            answer = work()
        except BaseException:
            with suppress(AdvisorError):  # the first error is the one to report; the key expires anyway
                self.stored.let_go(use)
            raise
        with suppress(StorageLocked):  # it was answered: who repeats it waits until the key's lease ends
            self.stored.keep(use, KeptAnswer(bytes(answer.body), answer.headers.get("location", "")))
        return answer


async def _answer_once(request: Request, idempotency_key: IdempotencyKey = None) -> AnswerOnce:
    target = f"{request.method} {request.url.path}?{request.url.query}"
    return AnswerOnce(request.app.state.advisor.access.idempotency, idempotency_key, target)


OnceDep = Annotated[AnswerOnce, Depends(_answer_once)]
