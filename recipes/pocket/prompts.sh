#!/usr/bin/env bash
# Trains the prompts that come with the pocket model, and the source statistics for alignment.
#
#   recipes/pocket/prompts.sh DATA [DEVICE]
#
# DATA holds tiny-imagenet-train-0.zip and tiny-imagenet-train-1.zip. Sixteen images of each of the 200 classes;
# the statistics are those of the first zip's 33,334 images. What was interrupted goes on where it stopped.
# What comes with the package: MaPLe and the statistics made on a CPU, the others on a GPU (bfloat16 autocast).
set -euo pipefail

data=${1:?usage: recipes/pocket/prompts.sh DATA [DEVICE]}
device=${2:-cpu}
shipped="$(cd "$(dirname "$0")/../.." && pwd)/packages/pocket/src/taps_pocket/prompts"
images=(--data "$data/tiny-imagenet-train-0.zip" --data "$data/tiny-imagenet-train-1.zip")
mkdir -p "$shipped"

# Fewer epochs than published, for a CPU: CoCoOp encodes every class anew for every image.
declare -A more=([maple]="" [coop]="--epochs 10" [proda]="--epochs 5" [cocoop]="--epochs 1")
for family in maple coop proda cocoop; do
  out="$shipped/pocket-$family"
  # shellcheck disable=SC2086
  [ -d "$out" ] || taps train "$family" --model pocket "${images[@]}" --shots 16 --seed 1 --device "$device" \
    ${more[$family]} --out "$out" --resume
done

# The whole set's statistics, blocks 0 and 1, half precision, beside the prompts they belong to. Those of each class
# weigh 27 MB, too much for the package: add --per-class and give the file as --source (or source=) for fine alignment.
source="$shipped/pocket-maple/source.safetensors"
[ -f "$source" ] || taps stats --model pocket --prompts "$shipped/pocket-maple" \
  --data "$data/tiny-imagenet-train-0.zip" --device "$device" --out "$source" --resume
