"""Balancers of other systems beside plans of Cotenant on the same clouds with rules."""
