"""A CloudStack cloud: read through signed API calls, with commands, and with migrations for its own DRS."""
