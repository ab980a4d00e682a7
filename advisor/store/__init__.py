"""All SQL of Cotenant: one file per noun, each with its table and the statements on it; no rules of placement."""
