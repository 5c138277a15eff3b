import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask: lite pull by subscription and by assignment, plain pulls at the edges, long polls. */
final class PullScenarios {
    private static final long WAIT_NANOS = 60_000_000_000L;

    static void register() {
        StockClient.register("litePullSubscribe", PullScenarios::litePullSubscribe);
        StockClient.register("litePullAssign", PullScenarios::litePullAssign);
        StockClient.register("pullEdges", PullScenarios::pullEdges);
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> bodies = new ArrayList<>();
        long deadline = System.nanoTime() + WAIT_NANOS;
        while (bodies.size() < count && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                bodies.add(new String(message.getBody()));
            }
        }
        return bodies;
    }

    private interface Seek {
        void run() throws MQClientException;
    }

    /**
     * The bodies from an offset on. A seek interrupts the pull under way, which closes its channel; a new pull that was
     * on it fails, and stock's client then goes on where it was before the seek. Who seeks once more has what it asked for.
     */
    private static List<String> seekAndPoll(DefaultLitePullConsumer consumer, Seek seek, long offset, int count)
            throws MQClientException {
        for (int attempt = 1; ; attempt++) {
            seek.run();
            List<MessageExt> messages = new ArrayList<>();
            long deadline = System.nanoTime() + WAIT_NANOS;
            while (messages.size() < count && System.nanoTime() < deadline) {
                messages.addAll(consumer.poll(200));
            }
            boolean lost = !messages.isEmpty() && messages.get(0).getQueueOffset() != offset;
            if (!lost || attempt == 3) {
                return messages.stream().map(message -> new String(message.getBody())).collect(Collectors.toList());
            }
        }
    }

    /** A group that consumes and commits, and comes back to find only what is new. */
    private static Object litePullSubscribe(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 4);
        DefaultMQProducer producer = clients.producer("judge_lite");
        PushScenarios.send(producer, topic, "one-", 40);
        Map<String, Object> seen = new LinkedHashMap<>();
        DefaultLitePullConsumer first = clients.litePull("group_" + topic);
        first.subscribe(topic, "*");
        first.start();
        seen.put("first", poll(first, 40));
        first.commitSync();
        first.shutdown();
        PushScenarios.send(producer, topic, "two-", 8);
        DefaultLitePullConsumer second = clients.litePull("group_" + topic);
        second.subscribe(topic, "TagA || TagB");
        second.start();
        seen.put("second", poll(second, 8));
        return seen;
    }

    private static Object litePullAssign(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        DefaultMQProducer producer = clients.producer("judge_assign");
        PushScenarios.send(producer, topic, "n-", 10);
        Thread.sleep(20);
        long middle = System.currentTimeMillis();
        Thread.sleep(20);
        PushScenarios.send(producer, topic, "m-", 10);
        DefaultLitePullConsumer consumer = clients.litePull("group_" + topic);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        MessageQueue queue = queues.iterator().next();
        Clients.await(60, () -> maxOffset(producer, queue) == 20); // a group without offsets begins at the end
        consumer.assign(queues);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("offsetForTimestamp", consumer.offsetForTimestamp(queue, middle));
        seen.put("from5", seekAndPoll(consumer, () -> consumer.seek(queue, 5), 5, 15));
        seen.put("fromBegin", seekAndPoll(consumer, () -> consumer.seekToBegin(queue), 0, 20));
        consumer.commitSync(Map.of(queue, 12L), true);
        long expected = 12;
        Clients.await(60, () -> committed(consumer, queue) == expected);
        seen.put("committed", committed(consumer, queue));
        consumer.seekToEnd(queue);
        producer.send(SendScenarios.message(topic, null, null, "last"));
        seen.put("fromEnd", poll(consumer, 1));
        return seen;
    }

    private static long maxOffset(DefaultMQProducer producer, MessageQueue queue) {
        try {
            return producer.maxOffset(queue);
        } catch (Exception notYet) {
            return -2;
        }
    }

    private static long committed(DefaultLitePullConsumer consumer, MessageQueue queue) {
        try {
            return consumer.committed(queue);
        } catch (Exception notYet) {
            return -2;
        }
    }

    private static Map<String, Object> describe(PullResult result) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getPullStatus().name());
        map.put("next", result.getNextBeginOffset());
        map.put("min", result.getMinOffset());
        map.put("max", result.getMaxOffset());
        map.put("found", result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size());
        return map;
    }

    /** Pulls before, in, at and beyond the queue, with a filter that matches nothing, and a held one that a send wakes. */
    private static Object pullEdges(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 2);
        DefaultMQProducer producer = clients.producer("judge_edges");
        DefaultMQPullConsumer consumer = clients.pull("group_" + topic);
        MessageQueue queue = null;
        MessageQueue empty = null;
        for (MessageQueue candidate : consumer.fetchSubscribeMessageQueues(topic)) {
            if (candidate.getQueueId() == 0) {
                queue = candidate;
            } else {
                empty = candidate;
            }
        }
        for (int i = 0; i < 40; i++) {
            producer.send(SendScenarios.message(topic, i < 36 ? "TagA" : "TagB", null, "e-" + i), queue);
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("begin", describe(consumer.pull(queue, "*", 0, 32)));
        seen.put("middle", describe(consumer.pull(queue, "*", 35, 32)));
        seen.put("end", describe(consumer.pull(queue, "*", 40, 32)));
        seen.put("beyond", describe(consumer.pull(queue, "*", 50, 32)));
        seen.put("emptyBegin", describe(consumer.pull(empty, "*", 0, 32)));
        seen.put("emptyBeyond", describe(consumer.pull(empty, "*", 7, 32)));
        seen.put("filtered", describe(consumer.pull(queue, "TagB", 0, 32)));
        seen.put("noMatch", describe(consumer.pull(queue, "Nothing", 0, 32)));
        long now = System.currentTimeMillis();
        seen.put("min", consumer.minOffset(queue));
        seen.put("max", consumer.maxOffset(queue));
        seen.put("emptyMin", consumer.minOffset(empty));
        seen.put("emptyMax", consumer.maxOffset(empty));
        seen.put("searchZero", consumer.searchOffset(queue, 0));
        seen.put("searchFuture", consumer.searchOffset(queue, now + 1_000_000));
        seen.put("emptySearch", consumer.searchOffset(empty, now));
        seen.put("earliestAgeMs", now - consumer.earliestMsgStoreTime(queue));
        MessageQueue waiting = queue;
        long since = System.nanoTime();
        CompletableFuture<PullResult> held = CompletableFuture.supplyAsync(() -> {
            try {
                return consumer.pullBlockIfNotFound(waiting, "*", 40, 32);
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
        Thread.sleep(400);
        seen.put("heldBeforeSend", !held.isDone());
        producer.send(SendScenarios.message(topic, "TagA", null, "wake"), queue);
        seen.put("woken", describe(held.get(20, TimeUnit.SECONDS)));
        seen.put("wokenSeconds", (System.nanoTime() - since) / 1e9);
        return seen;
    }

    private PullScenarios() {
    }
}
