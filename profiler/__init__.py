"""The profiler: observes what runs on a host and its metrics, and runs probes. No prediction and no SQL here."""
