"""Two readings of the libvirtd at a URI, as JSON: run without privileges by the lab."""

from __future__ import annotations

import json
import sys
import time

from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.collectors import collect

if __name__ == "__main__":
    backend = LibvirtBackend(host="h", connection=LibvirtConnection(sys.argv[1]))
    first = backend.read_counters()
    time.sleep(0.5)
    second = backend.read_counters()
    backend.close()
    absent = {name: dict(domain.absent) for name, domain in second.instances.items()}
    absent["whole"] = dict(second.whole.absent) if second.whole else {"whole": "not read"}
    samples = len(collect(first, second).samples)
    print(json.dumps({"instances": sorted(second.instances), "absent": absent, "samples": samples}))
