"""Learns: from profiles and measured co-locations to predictions; no SQL, HTTP or pydantic here."""
