"""OpenNebula: its external scheduler, and what its scheduler scripts ask."""
