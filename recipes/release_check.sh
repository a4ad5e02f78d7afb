#!/usr/bin/env bash
# Builds wheel and sdist, installs each into an environment of its own, and uses it there as a newcomer would.
# Nothing of this folder is on the way: commands run elsewhere, with the installed package alone.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check build
"$work/build/bin/python" -m build --outdir "$work/dist" "$here" >"$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
ls -l "$work/dist"

unset PYTHONPATH
for package in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
  echo "== $(basename "$package")"
  rm -rf "$work/env"
  python3 -m venv "$work/env"
  "$work/env/bin/pip" install --quiet --disable-pip-version-check -c "$here/constraints.txt" "$package"
  (
    cd "$work"
    "$work/env/bin/taps" --version
    "$work/env/bin/taps" methods >/dev/null
    "$work/env/bin/taps" demo --limit 12 --out "$work/demo" >/dev/null
    test -s "$work/demo/report.html"
    "$work/env/bin/python" - <<'PY'
import taps
from taps.data import demo_dataset

images = demo_dataset()
learner = taps.Learner(taps.load_clip("pocket"), images.classes, method="taps", views=2)
prediction = learner.predict_one(images.image(0))
assert prediction.label in images.classes
learner.save("learner")
assert taps.Learner.load("learner").seen == 1
PY
  )
done
"$work/env/bin/python" -c "
from importlib.metadata import version; import taps
assert version('taps-vlm') == taps.__version__, (version('taps-vlm'), taps.__version__)"
echo "The wheel and the sdist install, and work."
