"""A real OpenStack control plane on loopback with simulated computes: Keystone, Placement, Nova, MariaDB, RabbitMQ."""
