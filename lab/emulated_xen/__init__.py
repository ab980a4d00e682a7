"""A Xen machine in an emulator: Dom0 from this machine's own Debian packages, two guests, clients outside of it."""

SIZES_KB = (1, 4, 10, 30, 70, 100, 1024)
"""Sizes of the files that each guest serves."""
