"""Weigher and filter for Nova's scheduler that ask Cotenant; nothing of them may ever break scheduling."""
