"""A small campaign as text, and what reads such a text."""

from __future__ import annotations

from collections.abc import Callable

from lab.campaign import Campaign

Read = Callable[[str], Campaign]
BASE = """
name: test
seconds: 2
rounds: 3
workloads:
  web: {kind: web, size_kb: 100, network: {mode: dedicated, rate_mbit: 1000}}
  cpu: {kind: cpu}
pinnings:
  same: {cpus: ["0", "0"], clients: "1"}
  different: {cpus: ["0", "1"], clients: own}
"""
