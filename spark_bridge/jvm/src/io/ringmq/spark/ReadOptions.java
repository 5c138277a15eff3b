package io.ringmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.ringmq.spark.read.Column;
import io.ringmq.spark.store.StoreFolder;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Collectors;

/**
 * The validated options of a read.
 *
 * <p>Names, forms and meanings are those of {@code ringmq.spark_bridge.option_table}. Options that only the Python
 * source supports (brokers by address, streams, times) are refused by name.
 */
final class ReadOptions {
    /** The supported options by lower-case name, with the values that they accept. */
    private static final Map<String, String> FORMS = new HashMap<>();

    private static final List<String> NAMES = List.of(
            "store", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "failOnDataLoss",
            "minPartitions", "maxRecordsPerPartition", "includeHeaders", "columns",
            "verifyCrc", "includeSystemTopics", "transport");

    static {
        String offsets = "JSON {\"topic\": {\"broker:queue\": offset}}, every queue named";
        String count = "a whole number from 1 on";
        FORMS.put("store", "a folder that holds commitlog");
        FORMS.put("subscribe", "topic names separated by ,");
        FORMS.put("subscribePattern", "a regular expression for whole topic names");
        FORMS.put("assign", "JSON {\"topic\": [\"broker:queue\", queue]}");
        FORMS.put("startingOffsets", "earliest or " + offsets + "; -2 is earliest");
        FORMS.put("endingOffsets", "latest or " + offsets + "; -1 is latest");
        FORMS.put("minPartitions", count);
        FORMS.put("maxRecordsPerPartition", count);
        FORMS.put("columns", "column names separated by ,");
        FORMS.put("transport", "auto or shm");
        for (String name : List.of("failOnDataLoss", "includeHeaders", "verifyCrc", "includeSystemTopics")) {
            FORMS.put(name, "true or false");
        }
    }

    final StoreFolder store;
    final String broker;
    final boolean failOnDataLoss;
    final boolean verifyCrc;
    final boolean includeSystemTopics;
    final long minPartitions;
    final long maxRecordsPerPartition;
    final Offsets startingOffsets;
    final Offsets endingOffsets;
    private final List<Column> columns;
    private final Set<String> topics;
    private final Pattern pattern;
    private final Map<String, Set<Integer>> assigned;
    private final Map<String, String> given = new HashMap<>();

    /**
     * Parses the options. Raises IllegalArgumentException with the option and its accepted values, and IOException for
     * a folder without a store.
     */
    ReadOptions(Map<String, String> options) throws IOException {
        collect(options);
        if (text("store") == null) {
            throw new IllegalArgumentException("option store (" + FORMS.get("store") + ") is missing");
        }
        String root = text("store");
        store = new StoreFolder(Path.of(root.startsWith("file:") ? root.substring("file:".length()) : root));
        broker = store.brokerName();
        failOnDataLoss = flag("failOnDataLoss", true);
        verifyCrc = flag("verifyCrc", false);
        includeSystemTopics = flag("includeSystemTopics", false);
        minPartitions = number("minPartitions", 1);
        maxRecordsPerPartition = number("maxRecordsPerPartition", Long.MAX_VALUE);
        startingOffsets = offsets("startingOffsets", "earliest", Offsets.LATEST);
        endingOffsets = offsets("endingOffsets", "latest", Offsets.EARLIEST);
        columns = parseColumns();
        topics = new HashSet<>(words("subscribe"));
        pattern = parsePattern();
        assigned = parseAssign();
        if (!text("transport", "auto").matches("(?i)auto|shm")) {
            throw refusal("transport", text("transport"), "is not served by ringmq-jvm, which reads files only");
        }
        List<String> chosen = List.of("subscribe", "subscribePattern", "assign").stream()
                .filter(name -> text(name) != null)
                .collect(Collectors.toList());
        if (chosen.size() > 1) {
            throw new IllegalArgumentException("options " + String.join(" and ", chosen) + " exclude each other");
        }
    }

    /** Returns the columns of the option, or the default columns. */
    List<Column> columns() {
        return columns;
    }

    /** Returns true if the options give topics by name. */
    boolean namesTopics() {
        return !topics.isEmpty() || assigned != null;
    }

    /** Returns true if the options include the queue. */
    boolean wants(String topic, int queueId) {
        if (!topics.isEmpty()) {
            return topics.contains(topic);
        }
        if (pattern != null) {
            return pattern.matcher(topic).matches();
        }
        return assigned == null || assigned.getOrDefault(topic, Set.of()).contains(queueId);
    }

    /**
     * Checks that named topics and queues exist, and that offsets name exactly the queues of the read. Raises
     * IllegalArgumentException.
     */
    void check(Collection<StoreFolder.QueueName> found) {
        Set<String> there = found.stream().map(StoreFolder.QueueName::topic).collect(Collectors.toSet());
        for (String topic : topics) {
            if (!there.contains(topic)) {
                throw unknown("subscribe", topic);
            }
        }
        if (assigned != null) {
            assigned.forEach((topic, ids) -> ids.forEach(id -> {
                if (found.stream().noneMatch(queue -> queue.topic().equals(topic) && queue.queueId() == id)) {
                    throw unknown("assign", "queue " + id + " of " + topic);
                }
            }));
        }
        for (Offsets offsets : new Offsets[] {startingOffsets, endingOffsets}) {
            if (offsets != null) {
                offsets.check(found);
            }
        }
    }

    static IllegalArgumentException unknown(String option, String what) {
        return new IllegalArgumentException("option " + option + ": " + what + " not found among the queues that can be"
                + " read (system, retry and dead-letter topics need includeSystemTopics=true)");
    }

    static IllegalArgumentException refusal(String name, String text, String reason) {
        return new IllegalArgumentException(
                "option " + name + "='" + text + "' " + reason + "; accepted: " + FORMS.get(name));
    }

    private void collect(Map<String, String> options) {
        for (Map.Entry<String, String> option : options.entrySet()) {
            String lower = option.getKey().toLowerCase(Locale.ROOT);
            String name = lower.equals("path") ? "store" : lower;
            if (NAMES.stream().noneMatch(known -> known.equalsIgnoreCase(name))) {
                throw new IllegalArgumentException("option '" + option.getKey() + "' is not served by ringmq-jvm, which"
                        + " knows " + String.join(", ", NAMES) + "; format ringmq may know it");
            }
            String before = given.put(name, option.getValue());
            if (before != null && !before.equals(option.getValue())) {
                throw new IllegalArgumentException(
                        "option " + name + " is given twice, as '" + before + "' and as '" + option.getValue() + "'");
            }
        }
    }

    private String text(String name) {
        return given.get(name.toLowerCase(Locale.ROOT));
    }

    private String text(String name, String otherwise) {
        return text(name) == null ? otherwise : text(name);
    }

    private boolean flag(String name, boolean otherwise) {
        String text = text(name, String.valueOf(otherwise)).toLowerCase(Locale.ROOT);
        if (!text.equals("true") && !text.equals("false")) {
            throw refusal(name, text(name), "is not accepted");
        }
        return text.equals("true");
    }

    private long number(String name, long otherwise) {
        String text = text(name);
        if (text == null) {
            return otherwise;
        }
        if (!text.matches("[0-9]{1,18}") || Long.parseLong(text) < 1) {
            throw refusal(name, text, "is not accepted");
        }
        return Long.parseLong(text);
    }

    private List<String> words(String name) {
        String text = text(name);
        if (text == null) {
            return List.of();
        }
        List<String> words = Arrays.stream(text.split(","))
                .map(String::strip)
                .filter(word -> !word.isEmpty())
                .collect(Collectors.toList());
        if (words.isEmpty()) {
            throw refusal(name, text, "is empty");
        }
        return words;
    }

    private List<Column> parseColumns() {
        List<Column> found = new ArrayList<>();
        for (String name : words("columns")) {
            Column column = Column.named(name);
            if (found.contains(column)) {
                throw refusal("columns", text("columns"), "names a column twice");
            }
            found.add(column);
        }
        if (found.isEmpty()) {
            found.addAll(List.of(
                    Column.KEY, Column.VALUE, Column.TOPIC, Column.PARTITION, Column.OFFSET, Column.TIMESTAMP,
                    Column.TIMESTAMP_TYPE));
        }
        if (flag("includeHeaders", false) && !found.contains(Column.HEADERS)) {
            found.add(Column.HEADERS);
        }
        return found;
    }

    private Pattern parsePattern() {
        try {
            return text("subscribePattern") == null ? null : Pattern.compile(text("subscribePattern"));
        } catch (PatternSyntaxException failed) {
            throw refusal("subscribePattern", text("subscribePattern"), "is no regular expression");
        }
    }

    private Offsets offsets(String name, String end, long senseless) {
        String text = text(name);
        if (text == null || text.strip().equalsIgnoreCase(end)) {
            return null;
        }
        if (!text.strip().startsWith("{")) {
            throw refusal(name, text, "is not accepted");
        }
        return Offsets.parse(name, text, broker, senseless);
    }

    private Map<String, Set<Integer>> parseAssign() {
        String text = text("assign");
        if (text == null) {
            return null;
        }
        JsonNode topics = Offsets.read("assign", text);
        Map<String, Set<Integer>> queues = new HashMap<>();
        if (!topics.isObject() || topics.isEmpty()) {
            throw refusal("assign", text, "is no object with entries");
        }
        topics.properties().forEach(topic -> {
            Set<Integer> ids = new HashSet<>();
            if (!topic.getValue().isArray() || topic.getValue().isEmpty()) {
                throw refusal("assign", text, "has no list of queues for " + topic.getKey());
            }
            topic.getValue().forEach(queue -> ids.add(Offsets.queueId("assign", text, queue.asText(), broker)));
            queues.put(topic.getKey(), ids);
        });
        return queues;
    }
}
