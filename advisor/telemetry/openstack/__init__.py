"""What OpenStack's telemetry has watched, found by the catalogue of a cloud: Aetos before Prometheus, and Gnocchi."""
