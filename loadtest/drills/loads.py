"""The loads of a drill, in the order of their numbers in its report."""

from ringmq.loadtest.drills.delay_load import DelayLoad
from ringmq.loadtest.drills.filters import FilterLoad
from ringmq.loadtest.drills.load import Load
from ringmq.loadtest.drills.long_poll_load import LongPollLoad
from ringmq.loadtest.drills.order_load import OrderLoad
from ringmq.loadtest.drills.plain_loads import ReadLoad, SendLoad
from ringmq.loadtest.drills.poll_load import PollLoad
from ringmq.loadtest.drills.pop_load import PopLoad
from ringmq.loadtest.drills.reset_load import ResetLoad
from ringmq.loadtest.drills.retry_load import RetryLoad
from ringmq.loadtest.drills.timers import TimerLoad
from ringmq.loadtest.drills.transaction_load import TransactionLoad
from ringmq.loadtest.load.pops import serves_pop

POP_LOADS: tuple[type[Load], ...] = (PopLoad, PollLoad, LongPollLoad, OrderLoad, ResetLoad) if serves_pop() else ()
"""None in a tree without POP."""
LOADS: tuple[type[Load], ...] = (
    SendLoad, DelayLoad, TimerLoad, RetryLoad, TransactionLoad, *POP_LOADS, ReadLoad, FilterLoad,
)  # fmt: skip
