"""Nova's external scheduler call, as Cortex answers it."""
