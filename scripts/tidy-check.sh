#!/usr/bin/env bash
# Fails where go mod tidy would change the go.mod or go.sum of a module of the workspace.
set -euo pipefail
cd "$(dirname "$0")/.."

stale=0
for dir in $(go list -m -f '{{.Dir}}'); do
  if ! (cd "$dir" && GOWORK=off go mod tidy -diff); then
    echo "tidy-check: run GOWORK=off go mod tidy in ${dir#"$PWD"/}" >&2
    stale=1
  fi
done
exit "$stale"
