"""How much contention hosts have: a simulated reference, real measurements, and the judgement of predictions against both."""
