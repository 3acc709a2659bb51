#!/bin/sh
# Writes the three lock files anew: hashes for every package, and no registry's address.
# They hold for every Python that pyproject.toml supports: what only some need carries a marker.
# The widest comes first and binds the others, so that one version of a package is in all three.
set -eu
locks=deploy/locks

compile() {
    output=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-emit-build-options --output-file "$output" "$@" pyproject.toml
}

compile "$locks/test.txt" --extra demo --extra test
bound=$(mktemp)
trap 'rm -f "$bound"' EXIT
sed -n 's/^\([A-Za-z0-9._-]*==[^ ]*\).*/\1/p' "$locks/test.txt" >"$bound"
compile "$locks/demo.txt" --extra demo --constraint "$bound"
compile "$locks/runtime.txt" --constraint "$bound"
