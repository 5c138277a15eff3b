"""`python -m ringmq.loadtest.fuzz`."""

from ringmq.loadtest.fuzz.main import main

main()
