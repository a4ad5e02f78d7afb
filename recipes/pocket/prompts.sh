#!/usr/bin/env bash
# Trains the prompts that come with the pocket model, and the source statistics for alignment.
#
#   recipes/pocket/prompts.sh DATA [DEVICE]
#
# DATA holds tiny-imagenet-train-0.zip and tiny-imagenet-train-1.zip. Sixteen images of each of the 200 classes;
# the statistics are those of all training images. What was interrupted goes on where it stopped.
set -euo pipefail

data=${1:?usage: recipes/pocket/prompts.sh DATA [DEVICE]}
device=${2:-cpu}
shipped="$(cd "$(dirname "$0")/../.." && pwd)/src/taps/prompts/shipped"
images=(--data "$data/tiny-imagenet-train-0.zip" --data "$data/tiny-imagenet-train-1.zip")
mkdir -p "$shipped"

# Fewer epochs than published, for a CPU: CoCoOp encodes every class anew for every image.
declare -A more=([maple]="" [coop]="--epochs 5" [proda]="" [cocoop]="--epochs 2")
for family in maple coop proda cocoop; do
  out="$shipped/pocket-$family"
  # shellcheck disable=SC2086
  [ -d "$out" ] || taps train "$family" --model pocket "${images[@]}" --shots 16 --seed 1 --device "$device" \
    ${more[$family]} --out "$out" --resume
done

# One safetensors beside the prompts they belong to: whole set and per class, blocks 0 and 1, half precision.
source="$shipped/pocket-maple/source.safetensors"
[ -f "$source" ] || taps stats --model pocket --prompts "$shipped/pocket-maple" "${images[@]}" --per-class \
  --device "$device" --out "$source" --resume

# The package stays small: without classes where they weigh too much.
if [ "$(wc -c <"$source")" -gt 6000000 ]; then
  rm "$source"
  taps stats --model pocket --prompts "$shipped/pocket-maple" "${images[@]}" --device "$device" --out "$source"
fi
