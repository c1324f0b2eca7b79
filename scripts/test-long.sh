#!/usr/bin/env bash
# What is too long for every change: the model check of the batcher, the simulations of the scheduler over many seeds,
# each fuzz target for a while, and the long forms of the end-to-end tests (ANKUSA_LONG). Takes the package patterns of
# the workspace. A seed that fails is named by its test.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz_time=${FUZZ_TIME:-10s}
scheduler=./services/internal/scheduler
units=()
black_box=()
for pattern in "$@"; do
  if [ "$pattern" = ./e2e/... ]; then black_box+=("$pattern"); else units+=("$pattern"); fi
done

step() { echo "test-long: $* (after $SECONDS s)"; }

step "the model of the batcher"
ferry/model/check.sh

step "the scheduler's core, 5,000 seeds"
ANKUSA_SIM_SEEDS=5000 gotestsum --format pkgname -- -count=1 -timeout 40m -run '^TestI2ToI9_TheCoreAgainstAModel$' $scheduler/core

step "whole schedulers under faults, 200 seeds, then 20 under the race detector"
ANKUSA_SHELL_SEEDS=200 gotestsum --format pkgname -- -count=1 -timeout 30m -run '^TestI2ToI9_SchedulersUnderFaults$' $scheduler
ANKUSA_SHELL_SEEDS=20 gotestsum --format pkgname -- -count=1 -timeout 30m -race -run '^TestI2ToI9_SchedulersUnderFaults$' $scheduler

step "fuzzing, $fuzz_time each"
go list -f '{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}' "${units[@]}" |
  while read -r dir files; do
    for file in $files; do
      for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir/$file"); do
        step "$target in ${dir#"$PWD"/}"
        (cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzz_time" -fuzzminimizetime 10x . </dev/null)
      done
    done
  done

if [ "${#black_box[@]}" -gt 0 ]; then
  step "the long forms of the end-to-end tests"
  ANKUSA_LONG=1 gotestsum --format testname -- -count=1 -race -timeout 60m "${black_box[@]}"
fi
step "all passed"
