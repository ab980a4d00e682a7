"""`python -m research.benchmarks.public_data NAME SOURCE_DIR OUT_DIR`; each source has a module of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from models.data.tables import DatasetError
from research.benchmarks.public_data import gavel, pitot, spec2017
from research.benchmarks.public_data.dataset_writer import Converted, write_whole

ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert and write what the arguments name; 0 done, 1 with one sentence where that fails, 2 for wrong usage."""
    options = _options(arguments)
    converters: dict[str, Callable[[Path], Converted]] = {
        "spec2017": spec2017.convert,
        "pitot": pitot.convert,
        "gavel": partial(gavel.convert, platforms=options.platforms),
    }
    folders = {"spec2017": spec2017.META["name"], "pitot": pitot.META["name"], "gavel": gavel.META["name"]}
    try:
        if options.name == ALL:  # read everything before anything is written
            done = [(convert(options.source / folders[name]), folders[name]) for name, convert in converters.items()]
            targets = [(converted, options.out / folder) for converted, folder in done]
        else:
            targets = [(converters[options.name](options.source), options.out)]
        for converted, directory in targets:
            write_whole(converted, directory)
            print(converted.describe())
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{options.out} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks.public_data",
        description="Convert public measurements of co-located programs to dataset directories.",
    )
    parser.add_argument("name", choices=("spec2017", "pitot", "gavel", ALL), help="what to convert")
    parser.add_argument("source", type=Path, metavar="SOURCE_DIR", help="its files; for all, one folder per dataset")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="the dataset directory; for all, one below it each")
    parser.add_argument(
        "--platforms", nargs="+", default=gavel.DEFAULT_PLATFORMS, metavar="GPU",
        help="GPUs of gavel to convert (default: %(default)s)",
    )  # fmt: skip
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
