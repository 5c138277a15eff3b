"""Metrics of timer messages."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, GAUGE, HISTOGRAM, STORAGE, Metric

METRICS = (
    Metric("rocketmq_timing_messages", GAUGE, "Timer messages that wait", (*STORAGE, "topic")),
    Metric("rocketmq_timer_message_snapshot", GAUGE, "Those of a day, by seconds", (*STORAGE, "timer_bound_s")),
    Metric("rocketmq_timer_enqueue_lag", GAUGE, "Timer messages that are not in the wheel yet", STORAGE),
    Metric("rocketmq_timer_enqueue_latency_milliseconds", GAUGE, "Age of the oldest of them", STORAGE),
    Metric("rocketmq_timer_dequeue_lag", GAUGE, "Timer messages that wait in the wheel", STORAGE),
    Metric("rocketmq_timer_dequeue_latency_milliseconds", GAUGE, "Age of the open slot, ms", STORAGE),
    Metric("rocketmq_timer_enqueue_total", COUNTER, "Timer messages into the wheel", (*STORAGE, "topic")),
    Metric("rocketmq_timer_dequeue_total", COUNTER, "Timer messages out of the wheel", (*STORAGE, "topic")),
    Metric(
        "rocketmq_delay_message_latency_seconds",
        HISTOGRAM,
        "Delays that timer messages ask for",
        (*STORAGE, "topic"),
    ),
    Metric("ringmq_timer_enqueued_total", COUNTER, "Timer messages that went into the wheel"),
    Metric("ringmq_timer_delivered_total", COUNTER, "Timer messages delivered"),
    Metric("ringmq_timer_rolled_total", COUNTER, "Timer messages stored again, because they wait for long"),
    Metric("ringmq_timer_recalled_total", COUNTER, "Timer messages that a recall or delete withdrew"),
    Metric("ringmq_timer_skipped_total", COUNTER, "Timer messages without a target, a time or a record"),
    Metric("ringmq_timer_rebuilds_total", COUNTER, "Rebuilds of TimerLog and TimerWheel from the timer topic"),
    Metric("ringmq_timer_mended_slots_total", COUNTER, "Slots of TimerWheel that differed from TimerLog at a start"),
    Metric("ringmq_timer_behind_seconds", GAUGE, "Age of the oldest slot that is not delivered whole"),
    Metric("ringmq_timer_unread_messages", GAUGE, "Timer messages that are not in the wheel yet"),
    Metric("ringmq_timer_waiting_messages", GAUGE, "Timer messages that wait, without recalled ones"),
    Metric("ringmq_timer_waiting_beyond_day", GAUGE, "Those of a time more than a day ahead"),
    Metric("ringmq_timer_lateness_seconds", HISTOGRAM, "Time from a timer message's time to its place in the log"),
    Metric("ringmq_timer_minute_messages", GAUGE, "Timer messages delivered in the last minute"),
    Metric("ringmq_timer_minute_lateness_seconds", GAUGE, "Bound of their lateness, 34 s for more", ("quantile",)),
    Metric("ringmq_timer_oldest_record_bytes", GAUGE, "Log before the oldest record that a waiting one needs"),
    Metric("ringmq_timer_full_slots", GAUGE, "Slots for which sends are refused (timerCongestNumEachSlot)"),
    Metric("ringmq_timer_fullest_slot_messages", GAUGE, "Messages of the slot that has most"),
    Metric("ringmq_timer_fullest_slot_seconds", GAUGE, "Time until that slot"),
)
