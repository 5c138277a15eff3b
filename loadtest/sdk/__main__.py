"""`python -m ringmq.loadtest.sdk`."""

import sys

from ringmq.loadtest.sdk.main import main

sys.exit(main())
