"""The rules by which read workers redirect or refuse half messages.

As of stock (`SendMessageProcessor.sendMessage`, `TransactionalMessageBridge.parseHalfMessageInner`): TRAN_MSG alone
decides, not the transaction bits, and a retried message with a delay level is no half message but a delayed one. Unlike
stock, RingMQ cuts the counters that only brokers write. It refuses a half message with a delay level. Stock stores such
a message in the system topic of the delay, where no request can end its transaction.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.admission import ANY_TRANSACTION, REAL_QUEUE, Rule, RuleKind, RulePair, TopicId, ValueFrom, When
from ringmq.remoting import names, properties
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.flags import TRANSACTION_MASK
from ringmq.services.delay.admission import delay_rules

OF_HALVES = (
    RulePair(properties.TRANSACTION_ID.encode(), ValueFrom.UNIQ_KEY),
    RulePair(properties.TRANSACTION_CHECK_TIMES.encode(), ValueFrom.CUT),
    RulePair(properties.TRAN_PREPARED_QUEUE_OFFSET.encode(), ValueFrom.CUT),
)
"""Pairs of each half message. It needs no room for later ones: a copy without room for the count of its checks is its
last one."""
TRAN_MSG = properties.TRAN_MSG.encode()


def other_halves(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """Sends with TRAN_MSG = true that are delayed or refused."""
    if topic_id(names.HALF_TOPIC) is None:
        return ()
    retried = tuple(
        replace(
            rule,
            transaction=ANY_TRANSACTION,
            sys_flag_clear=TRANSACTION_MASK,
            with_name=TRAN_MSG,
            with_when=When.TRUE,
            is_retried=True,
        )
        for rule in delay_rules(config, topic_id)
    )
    refusal = Rule(RuleKind.REFUSE, TRAN_MSG, When.TRUE, transaction=ANY_TRANSACTION)
    if not retried:
        return ()
    if config.reject_transaction_message:
        remark = f"the broker[{config.broker_name[:63]}] sending transaction message is forbidden"
        return (*retried, replace(refusal, code=ResponseCode.NO_PERMISSION, remark=remark))
    delayed = replace(
        refusal,
        code=ResponseCode.MESSAGE_ILLEGAL,
        remark=f"{properties.DELAY}: a half message cannot be delayed",
        with_name=properties.DELAY.encode(),
        with_when=When.POSITIVE,
    )
    return (*retried, delayed)


def half_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with TRAN_MSG = true is a half message. It waits in the half topic until its transaction ends."""
    half = half_topic(config, topic_id)
    if half is None:
        return ()
    return (of_halves(Rule(RuleKind.REDIRECT, topic_id=half, pairs=(*REAL_QUEUE, *OF_HALVES)), config, half),)


def half_topic(config: BrokerConfig, topic_id: TopicId) -> int | None:
    """The topic of half messages. None if the broker takes none."""
    if config.reject_transaction_message or topic_id(names.SCHEDULE_TOPIC) is None:
        return None
    return topic_id(names.HALF_TOPIC)


def of_halves(rule: Rule, config: BrokerConfig, half: int) -> Rule:
    """The rule, for half messages alone, with their shares.

    A half beyond a share is refused at its send. So one that was stored has room until its transaction ends.
    """
    return replace(
        rule,
        name=TRAN_MSG,
        when=When.TRUE,
        transaction=ANY_TRANSACTION,
        sys_flag_clear=TRANSACTION_MASK,
        halves_max=config.open_halves_max,
        host_halves_max=config.host_open_halves_max,
        group_halves_max=config.group_open_halves_max,
        half_topic_id=half,
    )
