"""`python -m ringmq.loadtest.spark`."""

from ringmq.loadtest.spark.main import main

raise SystemExit(main())
