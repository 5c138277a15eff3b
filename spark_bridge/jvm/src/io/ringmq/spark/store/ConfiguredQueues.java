package io.ringmq.spark.store;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import io.ringmq.spark.store.StoreFolder.QueueName;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The configured queues of a store, as {@code ringmq.spark_bridge.configured_queues} finds them. A queue without
 * messages has no files.
 */
final class ConfiguredQueues {
    private static final Logger LOG = LoggerFactory.getLogger(ConfiguredQueues.class);
    private static final String FILE = "topics.json";
    private static final String REPLY_SUFFIX = "_REPLY_TOPIC";
    private static final int INHERIT = 1; // PermName
    private static final int READ = 4;
    private static final JsonMapper JSON = JsonMapper.builder()
            .enable(JsonReadFeature.ALLOW_UNQUOTED_FIELD_NAMES) // fastjson writes numeric names without quotes
            .build();

    private ConfiguredQueues() {}

    /**
     * Returns the readable queues of all topics. A file that cannot be read is logged and gives no queues.
     *
     * @param withOwn true: include the topics named after broker and cluster, which new topics inherit from
     */
    static List<QueueName> list(Path root, boolean withOwn) {
        Set<Map.Entry<String, JsonNode>> topics = table(root.resolve("config")).properties();
        Set<String> own = new HashSet<>();
        if (!withOwn) {
            topics.stream().filter(topic -> may(topic.getValue(), INHERIT)).forEach(topic -> own.add(topic.getKey()));
        }
        List<QueueName> names = new ArrayList<>();
        for (Map.Entry<String, JsonNode> topic : topics) {
            String name = topic.getKey();
            String base = name.endsWith(REPLY_SUFFIX) ? name.substring(0, name.length() - REPLY_SUFFIX.length()) : name;
            if (may(topic.getValue(), READ) && !own.contains(base)) {
                for (int id = 0; id < topic.getValue().path("readQueueNums").asInt(); id++) {
                    names.add(new QueueName(name, id, false));
                }
            }
        }
        return names;
    }

    private static boolean may(JsonNode config, int perm) {
        return (config.path("perm").asInt() & perm) != 0;
    }

    /** Returns the topics of the file, else those of its .bak. */
    private static JsonNode table(Path folder) {
        for (String name : new String[] {FILE, FILE + ".bak"}) {
            try {
                return JSON.readTree(Files.readAllBytes(folder.resolve(name))).path("topicConfigTable");
            } catch (NoSuchFileException none) {
                continue;
            } catch (IOException failed) {
                LOG.warn("{} cannot be read: its queues without messages are missing", folder.resolve(name), failed);
            }
        }
        return MissingNode.getInstance();
    }
}
