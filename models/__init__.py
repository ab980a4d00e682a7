"""Interference models: learn from profiles and measured co-locations, and predict. No SQL and no HTTP here."""

import os

# Threads of OpenMP (LightGBM, scikit-learn) that wait for work sleep instead of spinning: where other programs keep the
# CPUs busy, on which service and lab share them, spinning made a training more than twenty times slower. Read when the
# library is loaded, so it stands before any import of it; who sets it otherwise keeps their choice.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
