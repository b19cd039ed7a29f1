"""`python -m memstrat.notebooks build | check`: see `memstrat.notebooks`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memstrat.errors import MemstratError
from memstrat.notebooks import build as builder

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build the notebook series from notebooks/src.")


@app.command()
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Only these (02, 02_fair_pairs); else all.")] = None,
    repo: Annotated[str | None, typer.Option(help="Address to stamp: owner/name or owner/name@ref.")] = None,
    execute: Annotated[bool, typer.Option(help="Run solution editions that did not change too.")] = False,
) -> None:
    """Write every edition that is out of step with its source."""
    folder = builder.notebooks_dir()
    if repo:
        builder.write_address(folder, repo)
    written = builder.build(folder, execute=execute, only=names or (), report=typer.echo)
    typer.echo(f"{len(written)} edition(s) written, the rest in step.")


@app.command()
def check() -> None:
    """Exit with 1 if any edition is out of step with its source."""
    problems = builder.out_of_step(builder.notebooks_dir())
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(1 if problems else 0)


def main() -> None:
    try:
        app()
    except MemstratError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
