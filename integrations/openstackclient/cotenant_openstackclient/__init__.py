"""Commands of `openstack` that ask a Cotenant service."""
