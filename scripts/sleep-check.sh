#!/usr/bin/env bash
# Fails on a test file that sleeps and never mentions a synctest bubble, where alone sleeping is free and exact.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=$(git ls-files -co --exclude-standard '*_test.go' | xargs grep -ls 'time\.Sleep(' | xargs -r grep -L 'synctest' || true)
if [ -n "$bad" ]; then
  printf 'sleep-check: these tests sleep outside testing/synctest:\n%s\n' "$bad" >&2
  exit 1
fi
