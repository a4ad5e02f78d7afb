#!/usr/bin/env bash
# Looks the versions tested together up among known vulnerabilities. Says so where the registry does not answer.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check pip-audit
pinned=$(grep -c == "$here/constraints.txt")
"$work/env/bin/pip-audit" --requirement "$here/constraints.txt" --no-deps --disable-pip --progress-spinner off \
  --format json --output "$work/found.json" 2>"$work/log" || true  # found.json says it all
[ -s "$work/found.json" ] || { tail -3 "$work/log"; echo "Not audited: the registry does not answer."; exit 0; }
"$work/env/bin/python" - "$work/found.json" "$pinned" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))["dependencies"]
looked, bad = [each for each in found if "skip_reason" not in each], [each for each in found if each.get("vulns")]
for each in bad:
    print(f"{each['name']} {each['version']}: {', '.join(one['id'] for one in each['vulns'])}")
if looked:
    print(f"Audited {len(looked)} of {sys.argv[2]} packages: {len(bad)} with known vulnerabilities.")
else:
    print("Not audited: the registry does not answer.")
sys.exit(bool(bad))
PY
