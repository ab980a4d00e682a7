"""Parsers of /proc, /sys, control groups and Xen's tools. No I/O."""
