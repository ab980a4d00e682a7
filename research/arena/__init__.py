"""The arena: worlds to which VMs come or in which they move, policies that decide, judges, and tables."""
