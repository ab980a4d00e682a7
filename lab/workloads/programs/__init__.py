"""Programs of the lab's own, each a file that runs by itself with Python's standard library only."""
