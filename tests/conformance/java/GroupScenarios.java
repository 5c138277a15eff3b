import com.alibaba.fastjson.JSONObject;
import java.time.Instant;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a group sees of its topics: tag filters, starting points, many topics, its first message. */
final class GroupScenarios {
    private static final double WAIT_SECONDS = 60;

    static void register() {
        StockClient.register("tagFilters", GroupScenarios::tagFilters);
        StockClient.register("consumeFromWhere", GroupScenarios::consumeFromWhere);
        StockClient.register("manyTopics", GroupScenarios::manyTopics);
        StockClient.register("firstMessage", GroupScenarios::firstMessage);
        StockClient.register("holdConsumer", GroupScenarios::holdConsumer);
        StockClient.register("releaseConsumer", GroupScenarios::releaseConsumer);
    }

    /** "Aa" and "BB" have the same hash: the broker lets both pass, the client keeps its own. */
    private static Object tagFilters(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 2);
        String[] tags = {"TagA", "TagB", "Aa", "BB", null, "中文"};
        DefaultMQProducer producer = clients.producer("judge_tags");
        Map<String, List<String>> received = new LinkedHashMap<>();
        int index = 0;
        for (Object expression : args.getJSONArray("expressions")) {
            List<String> bodies = PushScenarios.bodies();
            received.put((String) expression, bodies);
            DefaultMQPushConsumer consumer = clients.push("group_" + topic + "_" + index++);
            consumer.subscribe(topic, (String) expression);
            consumer.registerMessageListener(PushScenarios.collectInto(bodies));
            consumer.start();
        }
        for (int i = 0; i < 60; i++) {
            String tag = tags[i % tags.length];
            producer.send(SendScenarios.message(topic, tag, null, tag + "-" + i));
        }
        int expected = args.getIntValue("expected");
        Clients.await(WAIT_SECONDS, () -> received.values().stream().mapToInt(List::size).sum() >= expected);
        Thread.sleep(300); // what must not come has had its chance
        return received;
    }

    /** Three new groups on a topic that already has messages; then more messages. */
    private static Object consumeFromWhere(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 2);
        DefaultMQProducer producer = clients.producer("judge_where");
        PushScenarios.send(producer, topic, "old-", 10);
        Thread.sleep(1100); // the client's time stamp counts in seconds
        String now = DateTimeFormatter.ofPattern("yyyyMMddHHmmss").withZone(ZoneId.systemDefault())
            .format(Instant.now());
        Map<String, List<String>> received = new LinkedHashMap<>();
        for (ConsumeFromWhere where : List.of(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)) {
            List<String> bodies = PushScenarios.bodies();
            received.put(where.name(), bodies);
            DefaultMQPushConsumer consumer = clients.push("group_" + topic + "_" + where.ordinal());
            consumer.setConsumeFromWhere(where);
            consumer.setConsumeTimestamp(now);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(PushScenarios.collectInto(bodies));
            consumer.start();
            Clients.await(WAIT_SECONDS, () -> PushScenarios.queues(consumer, topic).size() == 2);
        }
        PushScenarios.send(producer, topic, "new-", 10);
        Clients.await(WAIT_SECONDS, () -> received.values().stream().allMatch(
            bodies -> List.copyOf(bodies).stream().filter(body -> body.startsWith("new-")).count() >= 10));
        Thread.sleep(300);
        return received;
    }

    private static Object manyTopics(Clients clients, JSONObject args) throws Exception {
        int count = args.getIntValue("count");
        String prefix = args.getString("topic") + "_";
        DefaultMQAdminExt admin = clients.admin();
        String master = clients.masters().get(0);
        Map<String, Object> seen = new LinkedHashMap<>();
        Map<String, Object> seconds = new LinkedHashMap<>();
        long since = System.nanoTime();
        for (int i = 0; i < count; i++) {
            admin.createAndUpdateTopicConfig(master, new TopicConfig(prefix + i, 1, 1, 6));
        }
        seconds.put("created", (System.nanoTime() - since) / 1e9);
        TreeSet<String> listed = new TreeSet<>();
        Clients.await(60, () -> {
            listed.clear();
            try {
                admin.fetchAllTopicList().getTopicList().stream().filter(t -> t.startsWith(prefix)).forEach(listed::add);
            } catch (Exception notYet) {
                return false;
            }
            return listed.size() == count;
        });
        seen.put("listed", listed.size());
        seconds.put("listed", (System.nanoTime() - since) / 1e9);
        Map<String, String> received = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = clients.push("group_" + prefix);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        for (int i = 0; i < count; i++) {
            consumer.subscribe(prefix + i, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> received.put(message.getTopic(), new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        seconds.put("started", (System.nanoTime() - since) / 1e9);
        DefaultMQProducer producer = clients.producer("judge_many");
        for (int i = 0; i < count; i++) {
            producer.send(SendScenarios.message(prefix + i, "TagA", "many-" + i, prefix + i));
        }
        seconds.put("sent", (System.nanoTime() - since) / 1e9);
        Clients.await(180, () -> received.size() >= count); // a busy machine takes two minutes
        seconds.put("received", (System.nanoTime() - since) / 1e9);
        seen.put("received", received.size());
        seen.put("wrong", received.entrySet().stream().filter(e -> !e.getKey().equals(e.getValue()))
            .map(Object::toString).collect(Collectors.toList()));
        seen.put("seconds", seconds);
        return seen;
    }

    /**
     * New groups start in the same instant as the first send to their topics, all rounds side by side; the rounds that
     * missed their message are listed.
     */
    private static Object firstMessage(Clients clients, JSONObject args) throws Exception {
        List<Integer> missed = Collections.synchronizedList(new ArrayList<>());
        DefaultMQProducer producer = clients.producer("judge_first");
        Random random = new Random(args.getIntValue("seed"));
        List<Thread> rounds = new ArrayList<>();
        for (int round = 0; round < args.getIntValue("rounds"); round++) {
            String topic = args.getString("topic") + "_" + round;
            TopicOps.create(clients, topic, 1);
            producer.fetchPublishMessageQueues(topic);
            int delayMs = random.nextInt(60);
            int number = round;
            rounds.add(new Thread(() -> {
                if (!firstMessageArrives(clients, producer, topic, delayMs)) {
                    missed.add(number);
                }
            }));
        }
        rounds.forEach(Thread::start);
        for (Thread round : rounds) {
            round.join();
        }
        return missed;
    }

    private static boolean firstMessageArrives(Clients clients, DefaultMQProducer producer, String topic, int delayMs) {
        List<String> bodies = PushScenarios.bodies();
        DefaultMQPushConsumer consumer = clients.push("group_" + topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.registerMessageListener(PushScenarios.collectInto(bodies));
        try {
            consumer.subscribe(topic, "*");
            consumer.start();
            Thread.sleep(delayMs);
            producer.send(SendScenarios.message(topic, null, null, "first"));
            return Clients.await(60, () -> !bodies.isEmpty());
        } catch (Exception failure) {
            failure.printStackTrace();
            return false;
        }
    }

    private static final Map<String, Clients> HELD = new ConcurrentHashMap<>();

    /** Starts a member that stays until `releaseConsumer`, and waits until it has consumed and committed `count`. */
    private static Object holdConsumer(Clients unused, JSONObject args) throws Exception {
        Clients clients = new Clients(unused.namesrv);
        String topic = args.getString("topic");
        String group = args.getString("group");
        HELD.put(group, clients);
        List<String> bodies = PushScenarios.bodies();
        DefaultMQPushConsumer consumer = clients.push(group);
        consumer.subscribe(topic, args.getString("expression"));
        consumer.registerMessageListener(PushScenarios.collectInto(bodies));
        consumer.start();
        int count = args.getIntValue("count");
        Clients.await(WAIT_SECONDS, () -> bodies.size() >= count);
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Clients.await(WAIT_SECONDS, () -> {
            try {
                return unused.admin().examineConsumeStats(group, topic).computeTotalDiff() == 0;
            } catch (Exception notYet) {
                return false;
            }
        });
        return bodies.size();
    }

    private static Object releaseConsumer(Clients unused, JSONObject args) {
        HELD.remove(args.getString("group")).close();
        return "released";
    }

    private GroupScenarios() {
    }
}
