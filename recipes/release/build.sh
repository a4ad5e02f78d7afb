#!/usr/bin/env bash
# Builds sdist and wheel of both packages into a folder, each wheel from its sdist.
#
#   recipes/release/build.sh dist
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?usage: recipes/release/build.sh FOLDER}"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check build
for folder in "$here/packages/pocket" "$here"; do
  "$work/env/bin/python" -m build --outdir "$out" "$folder" >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
done
