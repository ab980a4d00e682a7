"""The service as it is, but by a clock that goes faster, so that a day passes in minutes.

python -m tests.servers.fast_service ADDRESS:PORT BEGIN AT FASTER

Its time was BEGIN (epoch seconds) when the monotonic clock, which all processes share, was at AT seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from advisor.service import Advisor
from api.cli.options import settings
from api.cli.serve import run_service


def fast_clock(begin_s: float, at_s: float, faster: float) -> Callable[[], datetime]:
    """The time of day by such a clock."""
    return lambda: datetime.fromtimestamp(begin_s + faster * (time.monotonic() - at_s), UTC)


if __name__ == "__main__":
    listen, *numbers = sys.argv[1:]
    defaults = Advisor.__init__.__kwdefaults__
    assert defaults is not None
    defaults["clock"] = fast_clock(*map(float, numbers))
    run_service(settings(listen=listen))
