import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Some queues of a topic, from their beginning to the end that they have now, through the stock lite-pull client.
 * It speaks in types of the JDK alone, so that Spark's process can load it beside Spark's own libraries.
 */
public final class LitePullFeed implements Supplier<List<Object[]>>, AutoCloseable {
    private static final int PULL_BATCH = 32; // the most that a stock broker sends by default
    private static final long POLL_TIMEOUT_MS = 30_000;

    private final DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("spark_bench_stock");
    private final Set<MessageQueue> open = new HashSet<>(); // not yet read to the end; none may be empty

    /** Queues are named as topic:queueId. */
    public LitePullFeed(String namesrv, Collection<String> queues) throws Exception {
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("feed-" + System.nanoTime());
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(PULL_BATCH);
        consumer.start();
        Set<String> topics = new HashSet<>();
        for (String queue : queues) {
            topics.add(queue.substring(0, queue.lastIndexOf(':')));
        }
        for (String topic : topics) {
            for (MessageQueue queue : consumer.fetchMessageQueues(topic)) {
                if (queues.contains(topic + ":" + queue.getQueueId())) {
                    open.add(queue);
                }
            }
        }
        consumer.assign(new ArrayList<>(open));
        for (MessageQueue queue : open) {
            consumer.seekToBegin(queue);
        }
    }

    /** The next messages as {key, body, topic, queue id, queue offset, store time in ms}; null at the end. */
    @Override
    public List<Object[]> get() {
        if (open.isEmpty()) {
            return null;
        }
        List<MessageExt> messages = consumer.poll(POLL_TIMEOUT_MS);
        if (messages.isEmpty()) {
            throw new IllegalStateException("no message for " + POLL_TIMEOUT_MS + " ms from " + open);
        }
        List<Object[]> rows = new ArrayList<>(messages.size());
        for (MessageExt message : messages) {
            String key = message.getKeys();
            rows.add(new Object[] {
                key == null ? null : key.getBytes(StandardCharsets.UTF_8), message.getBody(), message.getTopic(),
                message.getQueueId(), message.getQueueOffset(), message.getStoreTimestamp()});
            long end = Long.parseLong(message.getProperty(MessageConst.PROPERTY_MAX_OFFSET));
            if (message.getQueueOffset() + 1 >= end) {
                open.remove(new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId()));
            }
        }
        return rows;
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
