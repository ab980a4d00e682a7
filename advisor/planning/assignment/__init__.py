"""Who goes where in a whole cloud: the search over hosts that the full model predicted, with its bound; no I/O."""
