"""`python -m ringmq.loadtest.port`."""

from ringmq.loadtest.port.main import main

raise SystemExit(main())
