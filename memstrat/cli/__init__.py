"""The command line: wiring only. `memstrat --help` imports neither torch nor the record models.

Exit codes: 0 a stage that wrote or found its record, whatever it decided; 1 refused, with the
reason on stderr and nothing recorded; 2 usage.
"""

from __future__ import annotations

import sys

import typer

from memstrat.cli import commands, demo, estimate, grade, show

STOPPED = 130  # the shell's code for Ctrl-C

app = typer.Typer(
    name="memstrat", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Recompute activations, move them to the host, or both? Measure it, predict it, decide it.")
for module in (commands, demo, show, estimate, grade):
    module.add_to(app)


def main() -> None:
    """Run the command line; refusals become one message and exit code 1."""
    from memstrat.errors import MemstratError

    try:
        app()
    except MemstratError as error:
        print(f"memstrat: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        _say_stopped()
        sys.exit(STOPPED)
    except SystemExit as end:
        if end.code == STOPPED:  # how Typer passes Ctrl-C on
            _say_stopped()
        raise


def _say_stopped() -> None:
    print("memstrat: stopped. Finished runs are kept: the same stage continues under the same label.", file=sys.stderr)
