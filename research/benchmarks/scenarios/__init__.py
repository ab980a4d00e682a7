"""Advice followed on real instances: scenes, what stands for them, the question, and what came of the answer."""
