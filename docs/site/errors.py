"""The page of error codes, from the table of `api.problems`."""

from __future__ import annotations

from api.problems import KINDS
from docs.site.tables import code, made_by, prose, table

_EXAMPLE = """\
{
  "type": "/docs#input.invalid",
  "title": "Invalid input",
  "status": 422,
  "detail": "vcpus: Input should be greater than or equal to 1",
  "code": "input.invalid",
  "request_id": "4f1c2a",
  "field": "vcpus",
  "errors": [{"field": "vcpus", "code": "greater_than_equal", "detail": "Input should be greater than or equal to 1"}]
}
"""


def page() -> str:
    """The whole page."""
    rows = [
        (code(kind.code), str(kind.status), kind.title, prose(kind.help))
        for kind in sorted(KINDS, key=lambda one: (one.status, one.code))
    ]
    return "\n".join(
        [
            "# Error codes\n",
            made_by("`api/problems.py`"),
            "Every error of the REST service is a problem document (RFC 9457, `application/problem+json`).\n"
            "`code` is [stable](../stability.md); `detail` is for people and may change. `request_id` is in the log,\n"
            "too. `errors` names at most 20 wrong fields. A host that was rejected is no error: see\n"
            "[why a host was rejected](../answers.md#why-the-service-rejects-a-host).\n",
            f"```json\n{_EXAMPLE}```",
            table(("code", "status", "means", "what to do"), rows),
        ]
    )
