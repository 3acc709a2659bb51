#!/bin/sh
# Installs a real n8n, once, for `make test-all`, and prints the folder that it is in. It needs npm, which the test
# environment has, and nothing else. It lies in the user's cache folder, outside of the project; another version is
# installed beside it.
set -eu
version=${N8N_VERSION:-1.123.5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/unstall
folder=$cache/n8n-$version
here=$(cd "$(dirname "$0")/../.." && pwd)

# What it asks for beside itself is no longer what it was built with: one package is not to be had in the version that
# it names, and of others newer ones would be taken, which it cannot work with. Scripts of packages are not run: its
# compiled extras are for databases and nodes that the tests do not use.
package() {
    cat <<JSON
{
  "name": "unstall-n8n",
  "private": true,
  "dependencies": { "n8n": "$version", "@langchain/core": "1.1.49", "ajv": "^8", "zod": "3.25.67" },
  "overrides": { "xlsx": "0.18.5" }
}
JSON
}

if ! [ -f "$folder/node_modules/n8n/bin/n8n" ]; then
    echo "Installing n8n $version; this takes some minutes and 1.5 GB, once …" >&2
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.n8n.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    package >"$work/package.json"
    (cd "$work" && NODE_USE_SYSTEM_CA=1 PATH="$here/.venv/bin:$PATH" npm install --legacy-peer-deps --ignore-scripts --omit=dev \
        --no-package-lock --no-audit --no-fund --silent) >&2
    mv "$work" "$folder" # the last step: where there is one, it is whole
    trap - EXIT
fi
echo "$folder"
