"""Where each instance of a cloud goes: the search over hosts that the full model predicted, with its bound; no I/O."""
