"""Whole VMs as the lab's instances: the image they boot, the agent inside, QEMU around them, and their counters."""
