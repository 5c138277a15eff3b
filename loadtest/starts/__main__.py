"""`python -m ringmq.loadtest.starts`."""

from ringmq.loadtest.starts.main import main

raise SystemExit(main())
