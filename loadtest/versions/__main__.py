"""`python -m ringmq.loadtest.versions`."""

from ringmq.loadtest.versions.main import main

raise SystemExit(main())
