package io.ringmq.spark;

import java.util.Set;

/** Tells topics of applications from system topics, as {@code ringmq.client.topics} does. */
final class Topics {
    private static final Set<String> SYSTEM = Set.of(
            "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
            "CHECKPOINT_TOPIC");

    private Topics() {}

    /** Returns true for a topic of an application. System, retry and dead-letter topics are not. */
    static boolean isUserTopic(String topic) {
        return !SYSTEM.contains(topic)
                && !topic.startsWith("rmq_sys_")
                && !topic.startsWith("%RETRY%")
                && !topic.startsWith("%DLQ%");
    }
}
