#!/usr/bin/env bash
# Compares the protos with those that they grew from: the merge base with main, or on main the parent commit.
# The old protos are read with today's buf.yaml and today's vendored imports, so only proto/ankusa is compared.
set -euo pipefail
cd "$(dirname "$0")/.."

main=main
git rev-parse --verify --quiet "$main^{commit}" >/dev/null || main=origin/main
if ! base=$(git merge-base HEAD "$main" 2>/dev/null); then
  echo "proto-breaking: there is no main to compare with" >&2
  exit 1
fi
if [ "$base" = "$(git rev-parse HEAD)" ]; then
  if ! base=$(git rev-parse --verify --quiet "HEAD^1^{commit}"); then
    if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
      echo "proto-breaking: the clone is shallow and lacks the parent commit; git fetch --deepen=1" >&2
      exit 1
    fi
    echo "proto-breaking: this is the first commit, nothing to compare with"
    exit 0
  fi
fi
if [ -z "$(git ls-tree -r --name-only "$base" -- proto/ankusa)" ]; then
  echo "proto-breaking: no protos at ${base:0:12}, nothing to compare with"
  exit 0
fi

old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
git archive "$base" proto/ankusa | tar -x -C "$old"
cp buf.yaml "$old/"
cp -r proto/third_party "$old/proto/"
echo "proto-breaking: comparing with ${base:0:12}"
bin/tools/buf breaking --exclude-imports --against "$old"
