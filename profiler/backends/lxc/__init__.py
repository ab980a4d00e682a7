"""Containers of all kinds, read from control groups, tasks and network interfaces."""
