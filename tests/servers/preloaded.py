"""What the parent of `forked` programs imports and makes before it forks the first."""

import api.cli.serve
import api.serving  # noqa: F401
from api.app import _routes

_routes()
