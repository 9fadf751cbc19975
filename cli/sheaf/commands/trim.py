"""`sheaf trim`: make a running process return its free memory to the system."""

from __future__ import annotations

import click

from sheaf.commands import arguments
from sheaf.records import control
from sheaf.rendering import sizes
from sheaf.system import proc


@click.command()
@arguments.target_argument
@arguments.timeout_option
def trim(target: str, timeout: float) -> None:
    """Make a running process return its free memory to the system, as malloc_trim does.

    Free objects in sheaves and barns go to the slabs, and what is free then goes to the system. The program faults it in
    again when it needs it. The process must keep a record (SHEAF_RECORD). It answers at once, by its helper thread.

    \b
    Examples:
      sheaf trim 4711
      sheaf trim --timeout 30 redis-server
    """
    with control.connect(target, timeout) as process:
        before = proc.resident(process.pid)
        answer = process.ask(control.TRIM)
        after = proc.resident(process.pid)
        click.echo(f"{process.who}: {_said(answer.results[0], before, after)}")


def _said(given: int, before: int | None, after: int | None) -> str:
    """
    What was returned: by how much resident memory fell, because of the `given` bytes many had never been touched. Where that
    is not known, `given` is an upper bound.
    """
    if before is None or after is None:
        return f"returned at most {sizes.size(given)}"
    shown = [sizes.size(before), sizes.size(after)]
    if 0 < before - after < before // 16:  # would hardly be seen in these units
        shown = [f"{before >> 10} KiB", f"{after >> 10} KiB"]
    if after >= before:
        return f"returned nothing that was resident ({shown[0]} before, {shown[1]} after)"
    return f"returned {sizes.size(before - after)}; resident {shown[0]} before, {shown[1]} after"
