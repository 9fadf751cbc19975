"""The `sheaf` command."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import metadata

import click

from sheaf.run import run
from sheaf.stats import stats


def _version() -> str:
    try:
        return metadata.version("sheaf")
    except metadata.PackageNotFoundError:
        return "of a source tree"


class _Commands(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self.commands))}"
            ctx.fail(f"no such command: {args[0]}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), prog_name="sheaf")
def main() -> None:
    """Run programs on Sheaf's malloc and look at what its caches do."""


main.add_command(run)
main.add_command(stats)


def entry() -> None:
    """What the installed command calls; a closed pipe ends it quietly."""
    try:
        main(prog_name="sheaf")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    entry()
