"""The lab: measures how co-located workloads slow each other down, with real programs in real instances."""
