"""The agent that runs on hosts: the loop that measures, the exporter, and the spool that is pushed to a server."""
