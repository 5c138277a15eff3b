"""`python -m ringmq.loadtest.matrix`."""

from ringmq.loadtest.matrix.main import main

raise SystemExit(main())
