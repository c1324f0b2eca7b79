#!/usr/bin/env bash
# What is too long for every change: the model check of the batcher, every test 20 times under the race detector, each
# fuzz target for a while, and the long forms of the end-to-end tests (ANKUSA_LONG). Takes the package patterns of
# the workspace.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz_time=${FUZZ_TIME:-30s}
units=()
black_box=()
for pattern in "$@"; do
  if [ "$pattern" = ./e2e/... ]; then black_box+=("$pattern"); else units+=("$pattern"); fi
done

echo "test-long: the model of the batcher"
ferry/model/check.sh

echo "test-long: every test 20 times"
gotestsum --format pkgname -- -race -count=20 -timeout 120m "${units[@]}"

echo "test-long: fuzzing, $fuzz_time each"
go list -f '{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}' "${units[@]}" |
  while read -r dir files; do
    for file in $files; do
      for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir/$file"); do
        echo "test-long: $target in ${dir#"$PWD"/}"
        (cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzz_time" -fuzzminimizetime 10x . </dev/null)
      done
    done
  done

if [ "${#black_box[@]}" -gt 0 ]; then
  echo "test-long: the long forms of the end-to-end tests"
  ANKUSA_LONG=1 gotestsum --format testname -- -race -timeout 120m "${black_box[@]}"
fi
