#!/usr/bin/env bash
# What `make run` does after setup: database, model, example cloud, service, one answered question. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-.venv/bin}
listen=${COTENANT_LISTEN:-127.0.0.1:8080}

ask() {
  echo
  echo "Where should shop-7 go? (examples/shop-7.yaml on examples/cloud.yaml)"
  "$bin/cotenant" where examples/cloud.yaml --instance examples/shop-7.yaml --explain
}

listener=$("$bin/python" - "$listen" <<'PY'
import errno, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(f"http://{sys.argv[1]}/healthz", timeout=30).read()
    print("cotenant")
except (urllib.error.HTTPError, ValueError):
    print("other")
except OSError as error:
    known = {errno.ECONNREFUSED: "none", errno.ENETUNREACH: "unreachable"}
    print(known.get(getattr(getattr(error, "reason", None), "errno", None), "other"))
PY
)
if [ "$listener" = unreachable ]; then
  echo "Nothing on this machine reaches $listen: is the loopback interface up (ip link set lo up)?" >&2
  exit 1
fi
if [ "$listener" = other ]; then  # before a model is trained for minutes
  echo "Another program listens on $listen: name another port, COTENANT_LISTEN=127.0.0.1:8090 make run" >&2
  exit 1
fi

"$bin/cotenant" db upgrade
models=$("$bin/cotenant" models list --json)  # where it fails, it has said why
# Models of an older version cannot be read after an update: they count as none.
schema=$(sed -n 's/^SCHEMA = //p' models/learning/artifact.py)
trained() {  # is there a model that was trained, whether the gate let it pass or not?
  "$bin/python" -c '
import json, sys
sys.exit(not any(model.get("card", {}).get("schema") == int(sys.argv[1]) for model in json.load(sys.stdin)))' "$schema" <<<"$models"
}
kept() {  # the newest model of the state folder, which an earlier run trained and could not register
  "$bin/python" - "${COTENANT_STATE_DIR:-var}/models" "$schema" <<'PY'
import json, sys
from pathlib import Path
found = sorted(Path(sys.argv[1]).glob("*/card.json"), key=lambda card: card.stat().st_mtime, reverse=True)
print(next((card.parent.name for card in found if json.loads(card.read_text())["schema"] == int(sys.argv[2])), ""))
PY
}
if ! trained; then
  version=$(kept)
  if [ -z "$version" ]; then
    echo "Training on datasets/lab-pairs, lab-pairs-xeon-2cpu and lab-pairs-shared-xeon-2cpu ..."
    "$bin/cotenant" train --dataset datasets/lab-pairs --dataset datasets/lab-pairs-xeon-2cpu \
      --dataset datasets/lab-pairs-shared-xeon-2cpu || true
    version=$(kept)
    [ -n "$version" ] || { echo "There is no model to answer with: see above." >&2; exit 1; }
  fi
  "$bin/cotenant" models activate "$version" || echo "The analytic model answers instead."
fi
"$bin/cotenant" sync examples/cloud.yaml

if [ "$listener" = cotenant ]; then
  ask
  echo
  echo "The service runs already: http://$listen"
  exit 0
fi

COTENANT_LOG_LEVEL=${COTENANT_LOG_LEVEL:-warning} "$bin/cotenant" serve --listen "$listen" &
service=$!
trap 'kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true' EXIT
ready() {  # as long as the process lives it is waited for: a crowded machine takes its time
  "$bin/python" - "$listen" 2>/dev/null <<'PY'
import sys, urllib.request
urllib.request.urlopen(f"http://{sys.argv[1]}/readyz", timeout=30)
PY
}
until ready; do
  kill -0 "$service" 2>/dev/null || exit 1
  sleep 0.2
done
ask
echo
echo "The service runs on http://$listen (web page; API at /docs). Ctrl-C stops it."
echo "$bin/cotenant demo --live --listen 127.0.0.1:8081 shows a small cloud that changes while you look."
wait "$service"
