"""One file a sub-command: `add_arguments(parser)` and `execute(arguments)`. Heavy imports happen inside `execute`."""
