"""`python -m regard` is `regard`."""

import sys

from regard.cli.main import run

sys.exit(run())
