"""Hooks of mkdocs: the page of commands is made from the commands; nothing is loaded from the network."""

from __future__ import annotations

from typing import Any

PAGE = "reference/commands.md"
SHIM = "https://unpkg.com/iframe-worker/shim"  # what search needs in a page opened as a file


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append the help of each command to the page of commands; other pages stay as they are."""
    return markdown + "".join(_sections()) if page.file.src_uri == PAGE else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the search's helper from the site itself."""
    up = "../" * page.file.src_uri.count("/")
    return output.replace(SHIM, f"{up}assets/iframe-worker.js")


def _sections() -> list[str]:
    from taps.cli.main import COMMANDS, load_command

    made = []
    for name, line in COMMANDS.items():
        command = load_command(name)
        made.append(f"\n## taps {name}\n\n{line}\n\n{_help(command)}")
        for inner_name, inner in getattr(command, "commands", {}).items():
            made.append(f"\n### taps {name} {inner_name}\n\n{_help(inner)}")
    return made


def _help(command: Any) -> str:
    """The command's own words, and a table of what it takes."""
    words = (command.help or "").strip()
    shown = [
        _row(each) for each in command.params if each.name != "help" and not getattr(each, "hidden", False)
    ]
    table = "\n".join(["| | | default |", "|---|---|---|", *shown]) if shown else ""
    return f"{words}\n\n{table}\n"


def _row(parameter: Any) -> str:
    name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return f"| `{name}` | {_cell(getattr(parameter, 'help', None) or '')} | {_cell(shown)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
