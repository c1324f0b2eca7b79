#!/usr/bin/env bash
# Runs the benchmarks that are named, or all. Each prints one JSON line on standard output; docs/performance.md
# explains them. The batcher has its own, in its own module; so have those that look inside the scheduler. The others
# are black box.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
ferry() {
  go build -o bin/bench-ferry ./ferry/internal/benchcmd
  bin/bench-ferry || failed=1
}
scheduler() {
  bin/bench-scheduler "$@" || failed=1
}
product() {
  go build -o bin/bench ./e2e/cmd/bench
  bin/bench "$@" || failed=1
}

go build -o bin/bench-scheduler ./services/internal/benchcmd
known=$(bin/bench-scheduler -list)
if [ "$#" -eq 0 ]; then
  ferry
  scheduler
  product
fi
inside=() others=()
for name in "$@"; do
  if [ "$name" = ferry ]; then
    ferry
  elif grep -qxF -- "$name" <<<"$known"; then
    inside+=("$name")
  else
    others+=("$name")
  fi
done
[ "${#inside[@]}" -eq 0 ] || scheduler "${inside[@]}"
[ "${#others[@]}" -eq 0 ] || product "${others[@]}"
exit "$failed"
