"""From a question about one instance to a ranked answer: what is alike is predicted once, and told with reasons."""

from advisor.placement.decision import predict_scene, recommend

__all__ = ["predict_scene", "recommend"]
