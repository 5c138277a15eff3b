package io.ringmq.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.ringmq.spark.store.StoreFolder.QueueName;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * One end of a read as its option gives it: the same for all queues, or an offset for each.
 *
 * <p>The JSON forms are those of {@code ringmq.spark_bridge.offsets_option}: {@code {"topic": {"broker:queue": offset,
 * "queue": offset}}}.
 */
final class Offsets {
    static final long EARLIEST = -2;
    static final long LATEST = -1;

    private static final ObjectMapper JSON = JsonMapper.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
            .build();

    private final String option;
    private final String text;
    private final Map<String, Map<Integer, Long>> byTopic = new HashMap<>();

    private Offsets(String option, String text) {
        this.option = option;
        this.text = text;
    }

    /**
     * Parses one offset for each queue. Raises IllegalArgumentException for a malformed text.
     *
     * @param senseless {@link #EARLIEST} or {@link #LATEST}, the one that this end of a read cannot have
     */
    static Offsets parse(String option, String text, String broker, long senseless) {
        Offsets offsets = new Offsets(option, text);
        offsets.object(read(option, text)).properties().forEach(topic -> {
            Map<Integer, Long> queues = new HashMap<>();
            offsets.object(topic.getValue()).properties().forEach(queue -> {
                int id = queueId(option, text, queue.getKey(), broker);
                if (!queue.getValue().isIntegralNumber() || !queue.getValue().canConvertToLong()) {
                    throw ReadOptions.refusal(option, text, "has " + queue.getValue() + " for queue " + queue.getKey());
                }
                long offset = queue.getValue().longValue();
                if (offset < EARLIEST || offset == senseless) {
                    throw ReadOptions.refusal(option, text, "has " + offset + " for queue " + queue.getKey());
                }
                if (queues.put(id, offset) != null) {
                    throw ReadOptions.refusal(option, text, "names queue " + id + " of " + topic.getKey() + " twice");
                }
            });
            offsets.byTopic.put(topic.getKey(), queues);
        });
        return offsets;
    }

    /** Returns the offset of the queue. Raises IllegalArgumentException if the option does not name the queue. */
    long of(String topic, int queueId) {
        Long offset = byTopic.getOrDefault(topic, Map.of()).get(queueId);
        if (offset == null) {
            throw ReadOptions.refusal(option, text, "does not name queue " + queueId + " of " + topic);
        }
        return offset;
    }

    /** Checks that the option names all queues of the read, and no others. Raises IllegalArgumentException. */
    void check(Collection<QueueName> queues) {
        queues.forEach(queue -> of(queue.topic(), queue.queueId()));
        Set<String> read = queues.stream()
                .map(queue -> queue.queueId() + " of " + queue.topic())
                .collect(Collectors.toSet());
        byTopic.forEach((topic, offsets) -> offsets.keySet().forEach(id -> {
            if (!read.contains(id + " of " + topic)) {
                throw ReadOptions.unknown(option, "queue " + id + " of " + topic);
            }
        }));
    }

    static JsonNode read(String option, String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException failed) {
            throw ReadOptions.refusal(option, text, "is no JSON (" + failed.getOriginalMessage() + ")");
        }
    }

    /** Returns the queue id of {@code broker:queue} or {@code queue}. */
    static int queueId(String option, String text, String label, String broker) {
        int colon = label.lastIndexOf(':');
        String id = label.substring(colon + 1);
        if (colon >= 0 && !label.substring(0, colon).equals(broker)) {
            throw ReadOptions.refusal(option, text, "names queue " + label + ", but the store's broker is " + broker);
        }
        if (!id.matches("[0-9]{1,9}")) {
            throw ReadOptions.refusal(option, text, "has '" + label + "' for a queue; a queue is broker:queue");
        }
        return Integer.parseInt(id);
    }

    private JsonNode object(JsonNode node) {
        if (!node.isObject() || node.isEmpty()) {
            throw ReadOptions.refusal(option, text, "has " + node + " in place of an object with entries");
        }
        return node;
    }
}
