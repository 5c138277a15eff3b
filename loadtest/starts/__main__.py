"""`python -m ringmq.loadtest.starts`."""

import sys

from ringmq.loadtest.starts.main import main

sys.exit(main())
