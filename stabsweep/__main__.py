"""`python -m stabsweep`."""

import sys

from stabsweep.cli import main

sys.exit(main())
