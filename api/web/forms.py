"""Forms that pages send: read only where one of our own pages sent them, in the session that they were made for."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from api.auth.origin import require_own_page
from api.problems import CrossSite

KEY = "form_key"  # the hidden field of every form that changes something
_MOST_FIELDS = 1000
_MOST_BYTES = 256 * 1024


async def posted(request: Request) -> Mapping[str, str]:
    """The fields of a form, the last of those with one name; CrossSite where another site could have sent it.

    Every handler of a POST on a page takes it: `form: Posted`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, f"the body is {kind[:100] or 'without a type'}, a form is needed")
    require_own_page(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"the form is larger than {_MOST_BYTES // 1024} KiB")
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise HTTPException(400, "the body is no form in UTF-8, or has too many fields") from error
    form = dict(fields)
    if not hmac.compare_digest(form.pop(KEY, "").encode(), request.state.form_key.encode()):
        raise CrossSite("the form belongs to another session than the one that is signed in now")
    return form


Posted = Annotated[Mapping[str, str], Depends(posted)]
