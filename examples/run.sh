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

"$bin/cotenant" db upgrade
models=$("$bin/cotenant" models list --json)  # where it fails, it has said why
trained() {  # is there a model that was trained, whether the gate let it pass or not?
  "$bin/python" -c '
import json, sys
sys.exit(not any(model["version"] != "analytic" for model in json.load(sys.stdin)))' <<<"$models"
}
kept() {  # the newest model of the state folder, which an earlier run trained and could not register
  ls -1td "${COTENANT_STATE_DIR:-var}"/models/*/ 2>/dev/null | head -1 | xargs -r basename || true
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

if "$bin/python" - "$listen" <<'PY'
import sys, urllib.request
try:
    urllib.request.urlopen(f"http://{sys.argv[1]}/healthz", timeout=30).read()
except Exception:
    sys.exit(1)
PY
then
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
