"""`python -m kvjax`: the `kvjax` command."""

import sys

from kvjax.experiment.cli import main

if __name__ == "__main__":
    sys.exit(main())
