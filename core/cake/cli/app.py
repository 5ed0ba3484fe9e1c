"""The command line's entry: a static table of commands, each in a module that is imported only when called.

Exit status: 0 done; 1 the kernel or candidate was refused, or the goal not met; 2 wrong usage or bad input;
3 something is missing here (GPU, git, disk); 4 a broken plugin or a fault of cake; 130 interrupted.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from cake import __version__
from cake.diagnostics import KernelErrors, render
from cake.errors import CakeError, ExitCode

COMMANDS: dict[str, tuple[str, str]] = {
    # command: (module that defines a function of that name, its one line of help)
    "check": ("cake.cli.check", "Judge kernels without a GPU: types, rules, the machine's facts."),
    "predict": (
        "cake.cli.predict",
        "Predict a kernel's time: interval, bound, and what each unit and line costs.",
    ),
    "build": ("cake.cli.build", "Compile kernels for each architecture they claim, without a GPU."),
    "run": ("cake.cli.run", "Run a kernel on this host's GPU against its task's float64 oracle."),
    "bench": ("cake.cli.bench", "Time a kernel on this host's GPU, beside torch or another kernel."),
    "mutate": (
        "cake.cli.mutate",
        "Change a kernel in small ways that do harm, and count which of them the check reports.",
    ),
    "explain": ("cake.cli.explain", "Print what a rule, primitive, tactic or other plugin is about."),
    "evolve": (
        "cake.cli.evolve",
        "Evolve a kernel of TASK and commit each new best on the branch evolve/TASK/SESSION.",
    ),
    "sessions": (
        "cake.cli.sessions",
        "List the sessions, oldest first: task, state, candidates, best and speed-up.",
    ),
    "show": (
        "cake.cli.show",
        "Show a session with its candidates, or a candidate with its verdict and text.",
    ),
    "resume": (
        "cake.cli.resume",
        "Go on with a session where it stopped: nothing is lost, judged twice or committed twice.",
    ),
    "plugins": ("cake.cli.plugins", "List every plugin: kind, name, origin, author, commit, state."),
    "new": ("cake.cli.new", "Write the file of a new plugin, whose generated tests run at once."),
    "test": ("cake.cli.test", "Run the tests that plugin files carry in their cases."),
}
"""One row a command; help of the whole stays fast because only the command called is imported."""

_FULL_OR_GONE = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENOMEM}


def build(called: str | None) -> typer.Typer:
    """The application with the real function of the command `called`, and only the help of the others."""
    app = typer.Typer(
        name="cake",
        help="Evolve GPU kernels and the tools that judge them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=" ".join((__doc__ or "").partition("\n\n")[2].split()),
    )
    app.callback()(_options)
    for command, (module, summary) in COMMANDS.items():
        if command == called:
            function = getattr(import_module(module), command.replace("-", "_"))
            app.command(command)(function)
        else:
            app.command(command, help=summary)(_elsewhere)
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `cake` and exit with what happened; a user's failure is one message on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = next((word for word in words if not word.startswith("-")), None)
    sys.exit(guarded(lambda: build(called)(args=words, prog_name="cake")))


def guarded(action: Callable[[], Any]) -> int:
    """Run `action` and turn what it raises into a message and an exit status."""
    try:
        action()
    except SystemExit as end:
        return _status(end)
    except KernelErrors as refusal:
        _complain(render(refusal.diagnostics, refusal.source))
        return ExitCode.REFUSED
    except CakeError as failure:
        _complain(f"cake: {failure}")
        return failure.exit_code
    except KeyboardInterrupt:
        _complain("cake: interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.OK
    except OSError as failure:
        where = f"{failure.filename}: " if failure.filename else ""
        _complain(f"cake: {where}{failure.strerror or failure}")
        return ExitCode.ENVIRONMENT if failure.errno in _FULL_OR_GONE else ExitCode.USAGE
    except Exception:
        _complain(f"{traceback.format_exc()}cake: this is a fault of cake or of a plugin; please report it")
        return ExitCode.INTERNAL
    return ExitCode.OK


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cake {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of `cake` itself; all of them act through their callbacks."""


def _elsewhere() -> None:
    """Stands for a command that was not called."""


def _status(end: SystemExit) -> int:
    if isinstance(end.code, int):
        return end.code
    return ExitCode.OK if end.code is None else ExitCode.INTERNAL


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
