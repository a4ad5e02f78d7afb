"""Plant small bugs one by one and see whether the tests notice: `make mutants`, or one module by its name.

A mutant is a change to one place of one function, made by mutmut: another operator, number or argument. It is
killed where a test of the module fails, and survives where all pass. Each module is tried in a folder
of its own under mutants/, where `mutmut show` and `mutmut browse` tell more.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

MODULES = {
    "active/buffer": ["active/test_buffer.py"],
    "active/acquisition": ["active/test_selection.py"],
    "active/base": ["active/test_policy.py"],
    "active/dynamic": ["active/test_policy.py"],
    "active/paced": ["active/test_paced.py", "active/test_selection.py"],
    "active/policy": ["active/test_policy.py"],
    "active/quantiles": ["active/test_quantiles.py"],
    "active/question": ["active/test_question.py"],
    "adapt/gradient": ["adapt/test_gradient.py", "adapt/test_batch.py"],
    "adapt/losses": ["adapt/test_losses.py"],
    "adapt/memory": ["adapt/test_memory.py", "adapt/test_step.py"],
    "adapt/optimiser": ["adapt/test_optimiser.py", "adapt/test_batch.py"],
    "adapt/step": ["adapt/test_step.py"],
    "checkpoint": ["test_checkpoint_files.py"],
    "evaluate/statistics": ["evaluate/test_statistics.py"],
    "head/head": ["head/test_head.py", "head/test_history.py", "head/test_other_answers.py"],
    "head/history": ["head/test_history.py", "head/test_other_answers.py"],
    "head/whitening": ["head/test_whitening.py"],
    "head/linear": ["head/test_experts.py", "head/test_other_answers.py"],
    "head/mixture": ["head/test_mixture.py", "head/test_other_answers.py"],
    "head/neighbours": ["head/test_neighbours.py"],
    "head/notes": ["head/test_notes.py"],
    "head/out_of_class": ["head/test_other_answers.py"],
    "head/experts": ["head/test_experts.py", "head/test_shares.py", "head/test_head.py"],
    "session/loop": ["session/test_session.py"],
    "session/record": ["session/test_record.py"],
}
ROOT = Path(__file__).parents[1]
REASONS = {  # why no test can notice a line, by a pattern of what it became
    r"zip\(.*(, |strict=(None|False))\)": "both are of one length by the line before",
    r"(astype|to)\(None\)|dtype=None|one\.no, \)|, (None)?\)\.T": "numpy and torch take the same type",
    r"encoding=None|\"UTF-8\"|reshape\(-2|missing_ok=(None|False)|memory = None": "it is taken for the same",
    r"fsum\(losses\) \* len|10001|range\(101\)|person: int = 1|rstrip\(\"XX|else \"XXXX\"": "it cancels",
    r"spacing < max|spacing \+ 2\]|seen % WAIT|seen & \(seen - 2\)": "one more makes no difference",
    r"\(no\) or True|if no else 2\.0": "a factor common to all that are normalised",
    r"\(self\.annotator is None\) and False|rfind\(.*\) \+ 2\]": "the other way gives nothing",
    r"\] < left\]|<= level else|doubt >= DOUBT|total <= 1e-9": "the bound is met by chance alone",
}
KILLED_SHARE = 0.95  # of the mutants of each module must be killed
ALIVE = (0, 33)  # exit codes of mutmut: every test passed, no test came by; any other is a test that noticed


def prepare(module: str) -> Path:
    """A folder in which mutmut finds one module to change and the tests to run."""
    folder = ROOT / "mutants" / module.replace("/", ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    pytest = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    tables = {
        "mutmut": {
            "source_paths": ["src"],
            "only_mutate": [f"src/taps/{module}.py"],
            "pytest_add_cli_args_test_selection": [f"tests/{path}" for path in MODULES[module]],
            "pytest_add_cli_args": ["-p", "no:cacheprovider", "--hypothesis-profile=mutants"],
        },
        "pytest.ini_options": pytest,
    }
    # What JSON writes of strings and lists of them is TOML as well.
    lines = [
        line
        for name, values in tables.items()
        for line in (f"[tool.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    return folder


def try_again(folder: Path, found: Path) -> None:
    """Forget who survived and which tests reach what: both may have changed. Who was killed stays so."""
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    if not found.is_file():
        return
    try:
        results = json.loads(found.read_text())
    except ValueError:  # cut off when somebody stopped it
        shutil.rmtree(folder / "mutants")
        return
    codes = results["exit_code_by_key"]
    results["exit_code_by_key"] = {name: None if code in ALIVE else code for name, code in codes.items()}
    found.write_text(json.dumps(results))


def changed_lines(mutant: str, source: str) -> tuple[str, str]:
    """What a mutant makes of which lines, read from the file in which mutmut keeps a module's mutants."""
    name = mutant.rpartition(".")[2]
    original, plain = name.rpartition("_")[0] + "_orig", function_of(mutant).rpartition(".")[2]
    before, after = (functions_of(source)[each].replace(each, plain) for each in (original, name))
    apart = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    old, new = (" ".join(line[2:].strip() for line in apart if line[:2] == sign) for sign in ("- ", "+ "))
    return old, new


def function_of(mutant: str) -> str:
    """Function or Class.method, from the name that mutmut gives a mutant.

    >>> function_of("taps.head.linear.xǁRidgeǁadd__mutmut_3"), function_of("taps.files.x__part__mutmut_1")
    ('Ridge.add', '_part')
    """
    name = mutant.rpartition(".")[2].rpartition("__mutmut_")[0]
    return name.removeprefix("x_") if "ǁ" not in name else name.removeprefix("xǁ").replace("ǁ", ".")


@functools.cache
def functions_of(source: str) -> dict[str, str]:
    """The text of every function of a module, methods too, by its name."""
    lines = source.splitlines()
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found}


def mutmut(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{done.stdout[-5000:]}\nmutmut failed in {folder}.")
    return done.stdout


def main(modules: list[str]) -> int:
    unexplained, low = [], []
    print("| module | mutants | killed | share |\n|---|---:|---:|---:|")
    for module in modules:
        folder = prepare(module)
        found = folder / "mutants" / "src" / "taps" / f"{module}.py.meta"
        try_again(folder, found)
        mutmut(folder, "run", "--max-children", "1")
        codes = json.loads(found.read_text())["exit_code_by_key"]
        alive = [name for name, code in codes.items() if code in ALIVE]
        killed = len(codes) - len(alive)
        print(f"| {module} | {len(codes)} | {killed} | {killed / len(codes):.1%} |", flush=True)
        low += [module] if killed < KILLED_SHARE * len(codes) else []
        source = found.with_suffix("").read_text()
        for name in alive:
            old, new = changed_lines(name, source)
            if not any(re.search(pattern, new) for pattern in REASONS):
                unexplained.append(f"{module}, {function_of(name)}:\n  - {old}\n  + {new}")
    if unexplained:
        print("Survivors without a reason in tests/mutants.py:", *unexplained, sep="\n")
    if low:
        print(f"Fewer than {KILLED_SHARE:.0%} are killed in {', '.join(low)}.")
    return 1 if unexplained or low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(MODULES)))
