"""Clouds whose hosts' outcomes were measured: worlds, streams, who decides, and what came of it."""
