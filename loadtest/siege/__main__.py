"""`python -m ringmq.loadtest.siege`."""

from ringmq.loadtest.siege.main import main

main()
