#!/usr/bin/env bash
# Fetches the vendored protos again into proto/third_party: google/api and google/rpc from npm, buf/validate from the
# Go module. Run it to change a version; the result is committed.
set -euo pipefail

google_proto_files=6.0.1
protovalidate=v1.2.2

cd "$(dirname "$0")/.."
dest=proto/third_party
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

npm pack --silent --pack-destination "$tmp" "google-proto-files@$google_proto_files" >/dev/null
tar -xzf "$tmp/google-proto-files-$google_proto_files.tgz" -C "$tmp"
(cd "$tmp" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "github.com/bufbuild/protovalidate@$protovalidate" >module.json)
module=$(sed -n 's/.*"Dir": "\(.*\)",*/\1/p' "$tmp/module.json")

rm -rf "$dest"
install -D -m 644 -t "$dest/google/api" "$tmp"/package/google/api/{annotations,http}.proto
install -D -m 644 -t "$dest/google/rpc" "$tmp"/package/google/rpc/{error_details,status}.proto
install -D -m 644 -t "$dest/buf/validate" "$module/proto/protovalidate/buf/validate/validate.proto"
install -D -m 644 "$tmp/package/LICENSE" "$dest/google/LICENSE"
install -D -m 644 "$module/LICENSE" "$dest/buf/LICENSE"
