"""ProxLB, unchanged, beside a rebalance of Cotenant on the same simulated cluster."""
