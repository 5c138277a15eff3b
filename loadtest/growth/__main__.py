"""`python -m ringmq.loadtest.growth`."""

from ringmq.loadtest.growth.main import main

raise SystemExit(main())
