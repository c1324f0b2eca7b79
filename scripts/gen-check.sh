#!/usr/bin/env bash
# Fails where generating again would change a committed file. It writes to a temporary folder only.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
bin/tools/buf generate -o "$fresh"
if ! diff -r "$fresh/proto/gen" proto/gen; then
  echo "gen-check: proto/gen is stale or edited by hand; run make gen" >&2
  exit 1
fi
