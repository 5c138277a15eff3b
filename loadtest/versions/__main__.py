"""`python -m ringmq.loadtest.versions`."""

import sys

from ringmq.loadtest.versions.main import main

sys.exit(main())
