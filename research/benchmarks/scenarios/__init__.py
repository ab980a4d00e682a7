"""Follows advice on real instances: scenes, the testbed, the question, the advice and its results."""
