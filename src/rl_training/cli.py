"""The entry point of the command line.

Loading the program takes longer than pressing Ctrl-C. So this module imports nothing, and `main` takes over the signal
before it imports the rest.
"""

TYPE_CHECKING = False  # the module `typing` takes time too
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command line and return its exit code. Without arguments, those of this process are used."""
    try:
        from rl_training.command_line.common import interrupts

        if arguments is None:  # a program that calls `main` itself keeps its own handler
            interrupts.take_over()
        from rl_training.command_line.app import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130  # EXIT_INTERRUPTED; importing its name could be interrupted again
