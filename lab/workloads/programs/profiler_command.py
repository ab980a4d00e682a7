"""The command `cotenant-profiler`, run from the files that the lab itself runs from, installed or not.

Run as a file of its own: `python -I profiler_command.py ARGUMENTS...`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from profiler.cli import main

if __name__ == "__main__":
    sys.exit(main())
