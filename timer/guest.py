"""Timer messages, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Admission, Command, CopiedFile, Guest, Place

GUEST = Guest(
    "timer",
    metric_table="ringmq.timer.metric_table:METRICS",
    metrics="ringmq.timer.metrics:families",
    runtime_info="ringmq.timer.runtime_info:rows",
    doctor="ringmq.timer.doctor:LOOK",
    send_check="ringmq.timer.send_check:refusal",
    commands=(
        Command(
            "timer",
            "ringmq.timer.cli.commands:timer",
            help="See messages that wait for a time, and recall them.",
            after="group",
        ),
        Command("timers", "ringmq.timer.cli.store_timers:timers", group="store"),
    ),
    admission=(
        Admission(Place.TIMED_HALVES, "ringmq.timer.admission:timed_halves"),
        Admission(Place.TIMES, "ringmq.timer.admission:timer_rules"),
    ),
    store_entries=("timerlog", "timerwheel"),
    damage="ringmq.timer.timer_damage:find_timer_damage",
    on_log_cut="ringmq.timer.master_timers:forget_behind",
    slave_progress="ringmq.timer.slave_progress:SlaveProgress",
    control_answers="ringmq.timer.control_answers:answers",
    copied_files=(
        CopiedFile(
            "timermetrics",
            61,
            "timingCount",
            check="ringmq.timer.copied_counts:check_counts",
            is_optional=True,  # a stock master with timerWheelEnable=false has none
        ),
    ),
)
