"""Measures how co-located workloads slow each other down, with real programs in real instances on this host."""
