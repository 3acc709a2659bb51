#!/bin/sh
# Looks for the optional programs that the tests use beside Python, and installs them where it may.
# What stays missing is said here, and its tests are skipped with the reason.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }
may_install() { [ "$(id -u)" = 0 ] && has apt-get; }
# Runlevel 1: a server that comes with a package is for the tests to start, not for the machine.
install() {
    echo "Installing $1 …"
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1; }
}
notice() { echo "notice: $*"; }

has_browser() {
    has chromium-headless-shell || has chromium || has chromium-browser || has google-chrome ||
        .venv/bin/python - <<'PYTHON' 2>/dev/null
import pathlib, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not pathlib.Path(playwright.chromium.executable_path).exists())
PYTHON
}

# Chromium without a window takes a third of the time of one that only does not show it.
if ! has chromium-headless-shell; then
    { may_install && install chromium-headless-shell; } || has_browser ||
        { may_install && install chromium; } || .venv/bin/playwright install chromium >/dev/null 2>&1 ||
        notice "no Chromium here and none could be installed; the browser tests are skipped"
fi

if ! has redis-server; then
    { may_install && install redis-server; } ||
        notice "no redis-server here; what runs on Valkey and on Redis runs on Valkey only"
fi

if ! has postgres && ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    { may_install && install postgresql; } ||
        notice "no PostgreSQL here; its tests are skipped"
fi

if ! has mariadbd && ! [ -x /usr/sbin/mariadbd ]; then
    { may_install && install mariadb-server; } ||
        notice "no MariaDB here; its tests are skipped"
fi

if ! has prometheus-node-exporter; then
    { may_install && install prometheus-node-exporter; } ||
        notice "no node_exporter here; that servers are read from one is not tested"
fi

if ! has prometheus || ! has promtool; then
    { may_install && install prometheus; } ||
        notice "no Prometheus here; what it scrapes and how it judges is not tested"
fi

if ! has curl; then
    { may_install && install curl; } ||
        notice "no curl here; the gate's shell line is not tested"
fi

if ! has patch; then
    { may_install && install patch; } ||
        notice "no patch here; that it takes the patches of /tuning is not tested"
fi

for proxy in nginx caddy; do
    if ! has "$proxy"; then
        { may_install && install "$([ "$proxy" = nginx ] && echo nginx-light || echo caddy)"; } ||
            notice "no $proxy here; our configuration of it is not tested"
    fi
done
