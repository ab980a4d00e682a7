"""Strategies for OpenStack Watcher whose moves a Cotenant service plans."""
