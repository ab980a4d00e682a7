"""What rounding leaves of a number, so that who is exactly at a limit is not taken to be beyond it.

Libraries add up in another order on another CPU, and decimals are not binary fractions: 100 x 1.15 is a little less
than 115.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SLACK = 1e-9  # of a ratio: who is this little beyond a limit is at it, and keeps it
Size = TypeVar("Size", float, NDArray[np.float64])


def with_slack(room: Size) -> Size:
    """A room, in any unit, widened by what rounding may have taken of it; whatever is to fit is compared with this."""
    return room * (1 + SLACK)
