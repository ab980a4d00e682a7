"""Converters from public measurements of co-located programs to dataset directories; run with `python -m`."""
