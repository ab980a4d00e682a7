"""Makes the modules of integrations/nova that need nothing of Nova importable; those that do are tested in the lab."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integrations" / "nova"))
