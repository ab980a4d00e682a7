"""KVM and QEMU guests, read through libvirt's bulk statistics and the scheduler counts of QEMU's threads."""
