"""Plans for a whole cloud: admit, rebalance, evacuate, consolidate, resize, capacity and what-if; no I/O."""
