"""`python -m ringmq.loadtest.sdk`."""

from ringmq.loadtest.sdk.main import main

raise SystemExit(main())
