"""A Proxmox VE cluster as hosts and instances, read through its REST API."""
