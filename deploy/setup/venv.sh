#!/bin/sh
# Makes the virtual environment $1 with a Python 3.11, wherever this machine keeps it.
# One that is there and cannot be used (of another Python, or of one that is gone) is made anew; a good one stays.
set -eu
venv=$1

is_right() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; }
# The program itself, not the name it was asked by: a shim or a link may mean another one tomorrow.
program() { "$1" -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))'; }

python=
for candidate in "${PYTHON311:-}" python3.11 python3 python "${HOME:-}/.local/bin/python3.11" /usr/bin/python3.11 /usr/local/bin/python3.11; do
    if [ -n "$candidate" ] && is_right "$candidate"; then
        python=$candidate
        break
    fi
done

if [ -e "$venv" ] || [ -L "$venv" ]; then
    if is_right "$venv/bin/python" && [ -f "$venv/.stamp-made" ]; then
        if [ -z "${PYTHON311:-}" ] || [ "$(program "$venv/bin/python")" = "$(program "$python")" ]; then
            exit 0
        fi
        echo "$venv was made with $(program "$venv/bin/python"), and PYTHON311 names another: it is made anew."
    else
        echo "$venv is of another Python, or was not finished: it is made anew."
    fi
fi

if [ -z "$python" ]; then
    echo "Unstall needs Python 3.11, and none was found here." >&2
    echo "Install it (Debian 12: apt-get install python3.11 python3.11-venv), or say where it is: make PYTHON311=/path/to/python3.11 …" >&2
    exit 1
fi

# Debian keeps the part that makes environments in a package of its own.
if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y -q python3.11-venv >/dev/null 2>&1 ||
            { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q python3.11-venv >/dev/null 2>&1; } || true
    fi
    if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then
        echo "$python cannot make virtual environments: its ensurepip is missing. On Debian or Ubuntu: apt-get install python3.11-venv" >&2
        exit 1
    fi
fi

echo "Making $venv with $("$python" --version) …"
rm -rf "$venv"
"$python" -m venv "$venv"
touch "$venv/.stamp-made"
