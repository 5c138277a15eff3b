"""`python -m ringmq.loadtest.locust`."""

import sys

from ringmq.loadtest.locust.main import main

sys.exit(main())
