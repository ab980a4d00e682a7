"""From a question about one instance to a ranked answer: filters, candidate pinnings, scores, equivalence classes."""
