"""Weigher and filter for Nova's scheduler that ask Cotenant; whatever fails in them, servers must still be placed."""
