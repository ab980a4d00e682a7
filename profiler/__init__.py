"""Observes: what runs on a host, its metrics, probes and the lab; no prediction and no SQL here."""
