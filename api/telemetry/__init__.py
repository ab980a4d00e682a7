"""What the service says about itself: metrics for Prometheus, and lines of a log."""

from api.telemetry.counting import Telemetry
from api.telemetry.logs import JsonLines, TextLines, start_logging

__all__ = ["JsonLines", "Telemetry", "TextLines", "start_logging"]
