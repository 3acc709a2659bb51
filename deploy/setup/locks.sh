#!/bin/sh
# Writes the three lock files anew: hashes for every package, and no registry's address.
# The widest comes first and binds the others, so that one version of a package is in all three.
set -eu
locks=deploy/locks

compile() {
    output=$1
    shift
    .venv/bin/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
        --output-file "$output" "$@" pyproject.toml
}

compile "$locks/test.txt" --extra demo --extra test
bound=$(mktemp)
trap 'rm -f "$bound"' EXIT
sed -n 's/^\([A-Za-z0-9._-]*==[^ ]*\).*/\1/p' "$locks/test.txt" >"$bound"
compile "$locks/demo.txt" --extra demo --constraint "$bound"
compile "$locks/runtime.txt" --constraint "$bound"
