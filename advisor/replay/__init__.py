"""Replays: simulates placement policies on traces of real demand; every ratio is predicted."""

from advisor.replay.coordinator import replay
from advisor.replay.traces import load_trace

__all__ = ["load_trace", "replay"]
