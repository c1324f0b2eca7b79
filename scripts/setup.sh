#!/usr/bin/env bash
# Installs Debian packages where their commands are missing: a C compiler, which the race detector needs, and what is
# named besides (spin, for the batcher's model). Go, git, make, curl and Node are taken as given; all other tools are
# built from scripts/tools.
set -euo pipefail

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
for package in "$@"; do
  command -v "$package" >/dev/null || missing+=("$package")
done

if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: all packages are there"
  exit 0
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "setup: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
