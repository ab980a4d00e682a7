"""Containers of any kind, read from control groups, their tasks and their network interfaces."""
