"""Changes settings of instances on this host, by signed orders and within what a file of this host allows."""
