#!/usr/bin/env bash
# Fails where generating again would change a committed file. It writes to a temporary folder only.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
bin/tools/buf generate -o "$fresh"
(cd services/internal/config && go run ./configdoc "$fresh/configuration.md")

stale=0
diff -r "$fresh/proto/gen" proto/gen || stale=1
diff "$fresh/configuration.md" docs/configuration.md || stale=1
if [ "$stale" -ne 0 ]; then
  echo "gen-check: generated files are stale or edited by hand; run make gen" >&2
fi
exit "$stale"
