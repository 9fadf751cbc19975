"""`sheaf trim`: make a running process return its free memory to the system."""

from __future__ import annotations

import click

from sheaf import control, table


@click.command()
@control.target_argument
@control.timeout_option
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
        before = control.resident(process.pid)
        answer = process.ask(control.TRIM)
        after = control.resident(process.pid)
        line = f"{process.who}: returned {table.size(answer.results[0])}"
        if before is not None and after is not None:
            line += f"; resident {table.size(before)} before, {table.size(after)} after"
        click.echo(line)
