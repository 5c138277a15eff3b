"""`python -m ringmq.loadtest.spark`."""

import sys

from ringmq.loadtest.spark.main import main

sys.exit(main())
