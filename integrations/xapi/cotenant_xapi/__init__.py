"""A pool of XCP-ng or XenServer: read through XAPI, and advised as its Workload Balancing server."""
