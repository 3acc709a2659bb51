#!/bin/sh
# Installs a real n8n of each generation, once, for `make test-all`, and prints the folders that they are in, with a colon
# between them. Versions may be named (`n8n.sh 2.41.1`); the ones below are known to be complete in the registry.
# It needs npm, which the test environment has, and nothing else. They lie in the user's cache folder, outside of the
# project. One that cannot be installed does not hold up the other: the exit status is 1, and what is there is printed.
set -eu
known='1.123.5 2.41.1'
cache=${XDG_CACHE_HOME:-$HOME/.cache}/unstall
here=$(cd "$(dirname "$0")/../.." && pwd)

# What n8n asks for beside itself is no longer what it was built with: some packages are not to be had in the version
# that it names, and of others newer ones would be taken, which it cannot work with.
dependencies() {
    case $1 in
    1.*)
        cat <<JSON
  "dependencies": { "n8n": "$1", "@langchain/core": "1.1.49", "ajv": "^8", "zod": "3.25.67" },
  "overrides": { "xlsx": "0.18.5" }
JSON
        ;;
    *)
        cat <<JSON
  "dependencies": { "n8n": "$1", "@langchain/core": "1.2.8", "ajv": "^8", "zod": "3.25.76" },
  "overrides": {
    "xlsx": "0.18.5",
    "linkedom": "0.18.14",
    "@langchain/langgraph": "1.4.18",
    "@langchain/langgraph-checkpoint": "1.1.5",
    "@langchain/protocol": "0.0.19"
  }
JSON
        ;;
    esac
}

# Scripts of packages are not run: compiled extras are for databases and nodes that the tests do not use. Called in a
# condition, where the shell goes on after a failed command: so each step says what it does then.
install() (
    version=$1
    folder=$cache/n8n-$version
    if [ -f "$folder/node_modules/n8n/bin/n8n" ]; then exit 0; fi
    echo "Installing n8n $version; this takes some minutes and 2 GB, once …" >&2
    mkdir -p "$cache" && work=$(mktemp -d "$cache/.n8n.XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    cd "$work" || exit 1
    printf '{\n  "name": "unstall-n8n",\n  "private": true,\n%s\n}\n' "$(dependencies "$version")" >package.json || exit 1
    NODE_USE_SYSTEM_CA=1 PATH="$here/.venv/bin:$PATH" npm install --legacy-peer-deps --ignore-scripts --omit=dev \
        --no-package-lock --no-audit --no-fund --silent >&2 || exit 1
    mv "$work" "$folder" || exit 1 # the last step: where there is one, it is whole
    trap - EXIT
)

folders=
status=0
for version in ${*:-$known}; do
    if install "$version"; then
        folders=${folders:+$folders:}$cache/n8n-$version
    else
        echo "n8n $version could not be installed" >&2
        status=1
    fi
done
echo "$folders"
exit "$status"
