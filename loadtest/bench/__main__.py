"""`python -m ringmq.loadtest.bench`."""

from ringmq.loadtest.bench.main import main

raise SystemExit(main())
