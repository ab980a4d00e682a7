"""Asks: REST, web page and command line over `advisor.service`; no SQL and no learning library here."""
