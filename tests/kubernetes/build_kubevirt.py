"""Builds KubeVirt's virt-controller from the Go module proxy, with the definitions and the rights that go with it."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

from tests.kubernetes.build_control_plane import CACHE, LONGEST_S, CannotBuildError, run

VERSION = "1.6.0"  # the first with addedNodeSelector
FOLDER = CACHE / f"kubevirt-{VERSION}"
CONTROLLER, DEFINITIONS = FOLDER / "virt-controller", FOLDER / "definitions.json"
NAMESPACE = "kubevirt"
_MODULE = "kubevirt.io/kubevirt"
_BUILD = ["go", "build", "-p=2", "-mod=mod", "-trimpath", "-ldflags", "-s -w", "-o"]
_SOURCE = Path(__file__).parent / "kubevirt" / "main.go"


def build() -> Path:
    """The folder with the program and what is applied for it; CannotBuildError says what is missing."""
    ends = time.monotonic() + LONGEST_S
    if CONTROLLER.is_file() and DEFINITIONS.is_file():
        return FOLDER
    if shutil.which("go") is None:
        raise CannotBuildError("there is no go to build virt-controller with")
    module = FOLDER / "module"
    module.mkdir(parents=True, exist_ok=True)
    download = ["go", "mod", "download", "-json", f"{_MODULE}@v{VERSION}"]
    source = Path(json.loads(run(download, FOLDER, ends))["Dir"])
    # KubeVirt's own go.mod, with what stands beside it in its repository replaced by the versions that were released.
    text = (source / "go.mod").read_text().replace(f"module {_MODULE}\n", "module kubevirtbuild\n")
    text = re.sub(r"(kubevirt\.io/\S+) => \./staging/src/\S+", rf"\1 => \1 v{VERSION}", text)
    (module / "go.mod").write_text(f"{text}\nrequire {_MODULE} v{VERSION}\n")
    (module / "go.sum").write_bytes((source / "go.sum").read_bytes())
    shutil.copy(_SOURCE, module / "main.go")
    run([*_BUILD, "definitions", "."], module, ends)
    DEFINITIONS.write_text(run([str(module / "definitions"), NAMESPACE], module, ends))
    new = FOLDER / "virt-controller.new"
    run([*_BUILD, str(new), f"{_MODULE}/cmd/virt-controller"], module, ends)
    new.rename(CONTROLLER)
    return FOLDER


if __name__ == "__main__":
    print(build())
