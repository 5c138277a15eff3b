"""`python -m ringmq.loadtest.matrix`."""

import sys

from ringmq.loadtest.matrix.main import main

sys.exit(main())
