#!/usr/bin/env bash
# Runs the benchmarks that are named, or all. Each prints one JSON line on standard output; docs/performance.md
# explains them. The batcher has its own, in its own module; the others are black box.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
ferry() {
  go build -o bin/bench-ferry ./ferry/internal/benchcmd
  bin/bench-ferry || failed=1
}
product() {
  go build -o bin/bench ./e2e/cmd/bench
  bin/bench "$@" || failed=1
}

if [ "$#" -eq 0 ]; then
  ferry
  product
fi
others=()
for name in "$@"; do
  if [ "$name" = ferry ]; then ferry; else others+=("$name"); fi
done
[ "${#others[@]}" -eq 0 ] || product "${others[@]}"
exit "$failed"
