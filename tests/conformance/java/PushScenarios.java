import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Groups of push consumers: members that join and leave, broadcasting, order, failed messages. */
final class PushScenarios {
    private static final double WAIT_SECONDS = 60;
    private static final long STOP_MILLIS = 60_000;

    static void register() {
        StockClient.register("clustering", PushScenarios::clustering);
        StockClient.register("broadcasting", PushScenarios::broadcasting);
        StockClient.register("orderly", PushScenarios::orderly);
        StockClient.register("reconsumeLater", PushScenarios::reconsumeLater);
    }

    static void send(DefaultMQProducer producer, String topic, String prefix, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            producer.send(SendScenarios.message(topic, "TagA", prefix + i, prefix + i));
        }
    }

    static MessageListenerConcurrently collectInto(List<String> bodies) {
        return (messages, context) -> {
            for (MessageExt message : messages) {
                bodies.add(new String(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static List<String> bodies() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    /** Queue ids of `topic` that the member works on now. */
    static TreeSet<Integer> queues(DefaultMQPushConsumer consumer, String topic) {
        TreeSet<Integer> ids = new TreeSet<>();
        for (MessageQueue queue :
            consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                ids.add(queue.getQueueId());
            }
        }
        return ids;
    }

    private static Map<String, Object> step(long since, Object first, Object second) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("seconds", (System.nanoTime() - since) / 1e9);
        map.put("first", first);
        map.put("second", second);
        return map;
    }

    /** One member, then two, then one again, with messages at each stage; then the group comes back. */
    private static Object clustering(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 8);
        String group = "group_" + topic;
        List<String> atFirst = bodies();
        List<String> atSecond = bodies();
        DefaultMQProducer producer = clients.producer("judge_clustering");
        Map<String, Object> seen = new LinkedHashMap<>();

        DefaultMQPushConsumer first = clients.push(group);
        // What a listener has returned is committed then: without it, a message may come to the next member again.
        first.setAwaitTerminationMillisWhenShutdown(STOP_MILLIS);
        first.subscribe(topic, "*");
        first.registerMessageListener(collectInto(atFirst));
        long since = System.nanoTime();
        first.start();
        Clients.await(WAIT_SECONDS, () -> queues(first, topic).size() == 8);
        seen.put("alone", step(since, queues(first, topic), null));
        send(producer, topic, "one-", 40);
        Clients.await(WAIT_SECONDS, () -> atFirst.size() >= 40);

        DefaultMQPushConsumer second = clients.push(group);
        second.setAwaitTerminationMillisWhenShutdown(STOP_MILLIS);
        second.subscribe(topic, "*");
        second.registerMessageListener(collectInto(atSecond));
        since = System.nanoTime();
        second.start();
        Clients.await(WAIT_SECONDS, () -> queues(first, topic).size() == 4 && queues(second, topic).size() == 4);
        seen.put("joined", step(since, queues(first, topic), queues(second, topic)));
        send(producer, topic, "two-", 40);
        Clients.await(WAIT_SECONDS, () -> atFirst.size() + atSecond.size() >= 80);

        since = System.nanoTime();
        second.shutdown();
        Clients.await(WAIT_SECONDS, () -> queues(first, topic).size() == 8);
        seen.put("left", step(since, queues(first, topic), null));
        send(producer, topic, "three-", 40);
        Clients.await(WAIT_SECONDS, () -> atFirst.size() + atSecond.size() >= 120);
        first.shutdown();

        List<String> later = bodies();
        send(producer, topic, "four-", 8);
        DefaultMQPushConsumer third = clients.push(group);
        third.subscribe(topic, "*");
        third.registerMessageListener(collectInto(later));
        third.start();
        Clients.await(WAIT_SECONDS, () -> later.size() >= 8);
        seen.put("atFirst", atFirst);
        seen.put("atSecond", atSecond);
        seen.put("afterReturn", later);
        return seen;
    }

    private static Object broadcasting(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 4);
        List<List<String>> received = List.of(bodies(), bodies());
        for (List<String> bodies : received) {
            DefaultMQPushConsumer consumer = clients.push("group_" + topic);
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(collectInto(bodies));
            consumer.start();
            Clients.await(WAIT_SECONDS, () -> queues(consumer, topic).size() == 4);
        }
        send(clients.producer("judge_broadcast"), topic, "all-", 40);
        Clients.await(WAIT_SECONDS, () -> received.get(0).size() >= 40 && received.get(1).size() >= 40);
        return received;
    }

    /**
     * Messages 0..n per queue; a member suspends a queue once; a second member joins in the middle. Reported per queue:
     * the numbers in order of successful consumption, and whether two members ever worked on one queue at a time.
     */
    private static Object orderly(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int perQueue = 50;
        TopicOps.create(clients, topic, 4);
        DefaultMQProducer producer = clients.producer("judge_orderly");
        Map<Integer, List<Integer>> order = new TreeMap<>();
        Map<Integer, AtomicInteger> busy = new ConcurrentHashMap<>();
        AtomicBoolean overlap = new AtomicBoolean();
        AtomicBoolean suspended = new AtomicBoolean();
        AtomicInteger total = new AtomicInteger();
        List<Map<String, Integer>> byMember = List.of(new ConcurrentHashMap<>(), new ConcurrentHashMap<>());
        for (int queue = 0; queue < 4; queue++) {
            order.put(queue, Collections.synchronizedList(new ArrayList<>()));
            busy.put(queue, new AtomicInteger());
        }
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = clients.push("group_" + topic);
            Map<String, Integer> counts = byMember.get(member);
            consumer.subscribe(topic, "*");
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                int queue = context.getMessageQueue().getQueueId();
                if (busy.get(queue).incrementAndGet() > 1) {
                    overlap.set(true);
                }
                try {
                    int number = Integer.parseInt(new String(messages.get(0).getBody()));
                    if (queue == 1 && number == 5 && suspended.compareAndSet(false, true)) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    order.get(queue).add(number);
                    counts.merge(Integer.toString(queue), 1, Integer::sum);
                    total.incrementAndGet();
                    return ConsumeOrderlyStatus.SUCCESS;
                } finally {
                    busy.get(queue).decrementAndGet();
                }
            });
            members.add(consumer);
        }
        members.get(0).start();
        Clients.await(WAIT_SECONDS, () -> queues(members.get(0), topic).size() == 4);
        sendNumbers(producer, topic, 0, perQueue / 2);
        Clients.await(WAIT_SECONDS, () -> total.get() >= 4 * (perQueue / 2));
        members.get(1).start();
        boolean shared = Clients.await(WAIT_SECONDS,
            () -> queues(members.get(0), topic).size() == 2 && queues(members.get(1), topic).size() == 2);
        sendNumbers(producer, topic, perQueue / 2, perQueue);
        Clients.await(WAIT_SECONDS, () -> total.get() >= 4 * perQueue);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("shared", shared);
        seen.put("suspended", suspended.get());
        seen.put("overlap", overlap.get());
        seen.put("order", order.values());
        seen.put("byMember", byMember);
        return seen;
    }

    private static void sendNumbers(DefaultMQProducer producer, String topic, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            for (int queue = 0; queue < 4; queue++) {
                producer.send(SendScenarios.message(topic, null, null, Integer.toString(number)),
                    (queues, message, argument) -> queues.get((int) argument), queue);
            }
        }
    }

    /** One message fails once; it must come again, with the rest consumed meanwhile. */
    private static Object reconsumeLater(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        List<Map<String, Object>> attempts = Collections.synchronizedList(new ArrayList<>());
        List<String> others = bodies();
        DefaultMQPushConsumer consumer = clients.push("group_" + topic);
        consumer.subscribe(topic, "*");
        consumer.setConsumeMessageBatchMaxSize(1);
        long since = System.nanoTime();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (!new String(message.getBody()).equals("fails-3")) {
                others.add(new String(message.getBody()));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            Map<String, Object> attempt = new LinkedHashMap<>();
            attempt.put("seconds", (System.nanoTime() - since) / 1e9);
            attempt.put("reconsumeTimes", message.getReconsumeTimes());
            attempts.add(attempt);
            return attempts.size() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        send(clients.producer("judge_reconsume"), topic, "fails-", 8);
        Clients.await(60, () -> attempts.size() >= 2 && others.size() >= 7);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("attempts", attempts);
        seen.put("others", others);
        MessageQueue queue = new MessageQueue(topic, args.getString("broker"), 0);
        AtomicInteger committed = new AtomicInteger(-1);
        Clients.await(WAIT_SECONDS, () -> {
            try {
                committed.set((int) clients.admin().examineConsumeStats("group_" + topic, topic)
                    .getOffsetTable().get(queue).getConsumerOffset());
            } catch (Exception notYet) {
                return false;
            }
            return committed.get() == 8;
        });
        seen.put("committed", committed.get());
        return seen;
    }

    private PushScenarios() {
    }
}
