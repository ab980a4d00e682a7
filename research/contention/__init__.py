"""How much contention hosts have: simulated, measured, and predictions judged by both."""
