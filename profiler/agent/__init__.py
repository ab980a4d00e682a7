"""The agent on a host: the measuring loop, the exporter, and the spool that is pushed to a server."""
