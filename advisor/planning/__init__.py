"""Plans: what should become of a whole cloud at once; no I/O."""
