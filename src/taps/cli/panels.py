"""The first screen of a command's help, and the panels behind `--help-all`."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

ALL = "--help-all"
SHOWN = "taps.cli.help_all"  # in a context: whether everything is to be shown
FIRST = {  # what the first screen of an everyday command shows
    "run": "classes model method annotator rate budget quick out resume sort-into json",
    "label": "classes model method rate budget quick store host browser sort-into",
    "predict": "classes model template learner out top sort-into sure quiet",
    "watch": "classes model template learner out top sort-into every limit",
    "serve": "store files model device processes host port allowed-host",
    "eval": "dataset method model seeds rate limit set out measures jobs resume",
}
PANELS = {  # of the rest; what stands in none of them comes last
    "Model and class texts": "pretrained device dtype template texts prompts source plugin",
    "Images and their order": "root seed limit shuffle order preset stream corrupt severity outside",
    "Questions and answers": "as twice gold buffer noise delay",
    "Results": "link sure repredict json long baselines",
    "Limits": "max-body max-json max-pixels formats rate queue uploads",
    "Computation": "ray cpus-per-run gpus-per-run gpus-per-process minutes batch",
    "Label Studio": "label-studio label-studio-token image-hosts",
}
OTHERS = "Others"


def in_panels(command: Any) -> Any:
    """Let the help of an everyday command show a few options first, and all of them in panels on demand."""
    if command.name in FIRST:
        command.get_help_option_names = lambda context: ["--help", ALL]
        command.format_options = partial(_format, command)
    return command


def _format(command: Any, context: Any, formatter: Any) -> None:
    options = [each for each in command.params if each.param_type_name == "option"]
    rest = [each for each in options if not _named(each, FIRST[command.name])]
    shown = copy.copy(command)
    shown.params = [each for each in command.params if each not in rest]
    type(command).format_options(shown, context, formatter)
    if not context.meta.get(SHOWN):
        with formatter.section("More"):
            formatter.write_text(f"{len(rest)} other options: taps {command.name} {ALL}")
        return
    panels: dict[str, list[Any]] = {title: [] for title in (*PANELS, OTHERS)}
    for each in rest:
        title = next((title for title, names in PANELS.items() if _named(each, names)), OTHERS)
        panels[title].append(each.get_help_record(context))
    for title, records in panels.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _named(option: Any, names: str) -> bool:
    return bool({f"--{name}" for name in names.split()} & {*option.opts})
