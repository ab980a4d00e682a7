"""Replays: simulates placement policies on traces of real demand; every ratio is predicted."""

from advisor.plug_ins import require

require("traces", "a replay")  # before the modules of this package import them
