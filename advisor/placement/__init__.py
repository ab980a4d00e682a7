"""From a placement request to a ranked answer: filters, candidate pinnings, scores, equivalence classes of hosts."""
