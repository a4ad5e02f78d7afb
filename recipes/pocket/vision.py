"""Stage 3: train the vision tower against the locked text tower, within a budget of seconds.

The teacher answers once, for a fixed set of views of every image: crops, half of them mixed with another
image. Each view is kept twice, as a photo and as a drawing, so that a training step only gathers, flips
and erases, and the tower sees exactly what the teacher judged. It learns the teacher's answer and the
label at the leaves and at random cuts of WordNet, and, in its middle, what the teacher sees in each place
of the image: a small transformer on few images does not find that by itself.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from bank import DIETS, Bank
from data import living_named, load_images
from student import TextFeatures, VisionStudent
from teachers import Lite2


def wait_for(path: Path, seconds: float) -> None:
    """`text.py` may run beside the making of the bank."""
    start = time.time()
    while not path.exists():
        if time.time() - start > seconds:
            raise SystemExit(f"{path} is not there: run text.py first")
        time.sleep(1)


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.time()

    def say(what: str) -> None:
        print(f"{time.time() - began:5.0f}s {what}", flush=True)

    kept = {share: args.out.with_stem(f"{args.out.stem}-{round(100 * share)}") for share in args.keep}
    for path in kept.values():
        path.unlink(missing_ok=True)
    sources = load_images(args.data, device, args.limit, args.workers)
    stored = torch.load(args.data / "teacher.pt", weights_only=True, map_location=device)
    teacher = Lite2(len(stored["fc.bias"])).to(device)
    teacher.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in stored.items()})
    teacher = teacher.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    say("data ready")
    bank = Bank(sources, living_named(args.data, device), teacher, DIETS[args.stage], args, device)
    for name, source in sources.items():
        if name not in ("val", "tiny"):
            del source.pixels
    say("teacher asked")
    wait_for(args.text, args.patience)
    student = VisionStudent(args, bank, TextFeatures(args.text, device), device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        say(f"{torch.cuda.memory_allocated() / 2**30:.0f} GiB held")
    size = sum(p.numel() for p in student.visual.parameters()) / 1e6
    say(f"vision tower of {size:.1f} M parameters")
    sum(student.loss(0).values()).backward()  # type: ignore[union-attr]  # compiles before the clock starts
    say("first step compiled")
    step, start, report = 0, time.time(), 0.0
    budget = args.seconds if not args.until else args.until - (time.time() - began)
    while (spent := time.time() - start) < budget:
        parts = student.step(step, spent / budget)
        step += 1
        for share, path in kept.items():
            if spent > share * budget and not path.exists():
                student.save(path)
        if step in (1, 10, 100, 500) or spent - report > args.report:
            report = spent
            shown = " ".join(f"{k} {v.item():.3f}" for k, v in parts.items())
            scores = " ".join(
                f"{n} {student.accuracy(sources[n]):.1f}" for n in ("val", "tiny") if n in sources
            )
            scale = student.log_scale.exp().item()
            say(f"{spent:.0f}s of {budget:.0f} step {step} {shown} scale {scale:.1f} {scores}")
            student.save(args.out)
    student.save(args.out)
    if "val" in sources:
        say(f"done: {step} steps, {spent:.0f}s, tiny val {student.accuracy(sources['val'], 10**6):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote, and teacher.pt")
    parser.add_argument("--text", type=Path, required=True, help="textfeatures.npz of text.py")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for --text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", choices=list(DIETS), default="photos", help="what is shown; see bank.py")
    parser.add_argument("--init", type=Path, help="start from this stage's file instead of from nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=850)
    parser.add_argument(
        "--until", type=float, default=0, help="stop so many seconds after the start, preparation included"
    )
    parser.add_argument(
        "--keep", type=float, nargs="*", default=[0.5, 0.75], help="shares at which weights are kept, too"
    )
    parser.add_argument("--batch", type=int, default=1280)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=9)
    parser.add_argument("--tap", type=int, default=6, help="blocks below the guided patches")
    parser.add_argument("--lr", type=float, default=1.4e-3)
    parser.add_argument("--warmup", type=int, default=1000, help="steps until the full rate")
    parser.add_argument("--weight-decay", type=float, default=0.06)
    parser.add_argument("--drop-path", type=float, default=0.08)
    parser.add_argument("--ema", type=float, default=0.9995)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--balance", type=float, default=0.7)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--smallest-crop", type=float, default=0.25)
    parser.add_argument("--teacher-side", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--hard", type=float, default=0.3)
    parser.add_argument("--erase", type=float, default=0.25)
    parser.add_argument("--cut-groups", type=int, default=1500)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--report", type=float, default=30)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--workers", type=int, default=16)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
