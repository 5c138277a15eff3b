"""`python -m ringmq.loadtest.bench`."""

import sys

from ringmq.loadtest.bench.main import main

sys.exit(main())
