#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need, where they are missing. Go, git, make, curl and Node
# are taken as given; all other tools are built from scripts/tools.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)   # the race detector needs cgo; spin compiles its checker
command -v spin >/dev/null || missing+=(spin)          # the batcher's model

if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: all packages are there"
  exit 0
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "setup: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
