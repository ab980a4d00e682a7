"""Simulated clouds of measured hosts: worlds, arrival streams, policies and their results."""
