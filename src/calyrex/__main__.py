"""Run the command line as ``python -m calyrex``."""

import sys

from calyrex.cli import main

if __name__ == "__main__":
    sys.exit(main())
