"""`python -m ringmq.loadtest.port`."""

import sys

from ringmq.loadtest.port.main import main

sys.exit(main())
