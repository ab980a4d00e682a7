"""Tuning: the best settings for all instances of a host that stands as it is, with the fewest and mildest changes."""
