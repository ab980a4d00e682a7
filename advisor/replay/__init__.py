"""Replays: traces of real demand put through placement policies side by side; every ratio is predicted."""

from advisor.replay.coordinator import replay
from advisor.replay.traces import load_trace

__all__ = ["load_trace", "replay"]
