"""Advises: filters, ranks and explains placements, and keeps the state; no HTTP here."""
