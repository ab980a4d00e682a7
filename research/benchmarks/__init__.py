"""Benchmarks: speed and quality, always beside a baseline measured in the same run; not part of the product."""
