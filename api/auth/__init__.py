"""Who may ask: where the service listens, who sends a request, and what that caller may do."""

from api.auth.gate import (
    AuthMiddleware,
    Guarded,
    Needs,
    bind,
    first_step,
    is_loopback,
    parse_listen,
    require,
    require_loopback,
)

__all__ = [
    "AuthMiddleware",
    "Guarded",
    "Needs",
    "bind",
    "first_step",
    "is_loopback",
    "parse_listen",
    "require",
    "require_loopback",
]
