"""POP, as the rest of the broker knows it."""

from __future__ import annotations

from ringmq.ipc.guests import Command, Guest

GUEST = Guest(
    "pop",
    metric_table="ringmq.pop.metric_table:METRICS",
    metrics="ringmq.pop.metrics:families",
    questions="ringmq.pop.questions:QUESTIONS",
    control_answers="ringmq.pop.control_answers:answers",
    memory_bytes="ringmq.pop.arena:memory_bytes",
    store_entries=("pop",),
    commands=(
        Command("inflight", "ringmq.pop.cli.inflight:inflight", group="group"),
        Command("mode", "ringmq.pop.cli.mode:mode", group="group"),
        Command(
            "pop",
            "ringmq.pop.cli.drain:pop",
            help="End POP at a broker before an older version gets its store.",
            after="timer",
        ),
    ),
    damage="ringmq.pop.pop_damage:find_pop_damage",
    inspect="ringmq.pop.window_table:windows_of",
    open_messages="ringmq.pop.open_memory:open_memory",
    on_log_cut="ringmq.pop.log_cut:forget_behind",
    on_slave_start="ringmq.pop.log_cut:forget_as_slave",
    holds="ringmq.pop.image_file:has_image",
    doctor="ringmq.pop.doctor:LOOK",
    slave_progress="ringmq.pop.slave_progress:SlaveProgress",
)
