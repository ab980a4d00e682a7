"""Strategies of OpenStack Watcher, unchanged, beside plans of Cotenant on the same simulated cluster."""
