"""KVM and QEMU guests, read through libvirt's bulk statistics and the accounts of QEMU's threads."""
