#!/bin/sh
# Builds a real Loki, once, for `make test-all`, and prints the path of its program. It needs Go, and nothing else.
# It lies in the user's cache folder, outside of the project; another version is built beside it.
# With --built it builds nothing: it prints the path of one that is there, and fails where there is none.
set -eu
version=${LOKI_VERSION:-v3.7.8}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/unstall
folder=$cache/loki-$version
push=github.com/grafana/loki/pkg/push

find_go() {
    for candidate in "${GO:-}" go /usr/local/go/bin/go; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    echo "A real Loki is built with Go, and none was found here. GO=/path/to/go says where it is." >&2
    exit 1
}

# Some of its dependencies are replaced by others, which Go heeds only in the module that is built: so a copy of it is
# built, not the module as it was downloaded. One of its own folders is a module apart and not in what is downloaded;
# the one that it asks for without that will do.
build() {
    "$go" mod download -json "github.com/grafana/loki/v3@$version" >module.json || { cat module.json; exit 1; }
    cp -R "$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p' module.json)" source
    chmod -R u+w source
    cd source
    "$go" mod edit -dropreplace "$push"
    CGO_ENABLED=0 "$go" build -mod=mod -buildvcs=false -trimpath -ldflags "-s -w" -o ../loki ./cmd/loki
}

if ! [ -x "$folder/loki" ]; then
    [ "${1:-}" != --built ] || exit 1
    go=$(find_go)
    echo "Building Loki $version; this takes some minutes, once …" >&2
    mkdir -p "$folder"
    work=$(mktemp -d "$cache/.loki.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    (cd "$work" && build) >&2
    mv "$work/loki" "$folder/loki" # the last step: where there is one, it is whole
fi
echo "$folder/loki"
