"""VMs as the lab's instances: their boot image, the agent inside, QEMU or Xen around them, and their counters."""
