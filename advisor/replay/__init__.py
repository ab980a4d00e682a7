"""Replays: simulates placement policies on traces of real demand; every ratio is predicted."""
