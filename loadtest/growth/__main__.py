"""`python -m ringmq.loadtest.growth`."""

import sys

from ringmq.loadtest.growth.main import main

sys.exit(main())
