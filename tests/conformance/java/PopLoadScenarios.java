import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** An operator changes the mode or the offsets of a group, while its members consume and messages are sent. */
final class PopLoadScenarios {
    private static final double TURNED_SECONDS = 100;
    private static final long TIMEOUT_MILLIS = 60_000;
    private static final String POP = "POP";

    static void register() {
        StockClient.register("popModes", PopLoadScenarios::modes);
        StockClient.register("popResetsUnderLoad", PopLoadScenarios::resets);
    }

    /** Calls of the listeners of a group in order: the body, and the mode in which it came. */
    private static final class Calls {
        final List<List<String>> all = Collections.synchronizedList(new ArrayList<>());
        final Set<String> bodies = ConcurrentHashMap.newKeySet();
        private final AtomicInteger popped = new AtomicInteger();

        void add(MessageExt message) {
            boolean isPopped = message.getProperty(MessageConst.PROPERTY_POP_CK) != null;
            popped.addAndGet(isPopped ? 1 : 0);
            String body = PopWork.body(message);
            all.add(List.of(body, isPopped ? POP : "PULL"));
            bodies.add(body);
        }

        int count(String mode) {
            return POP.equals(mode) ? popped.get() : all.size() - popped.get();
        }
    }

    /** A member whose broker assigns its queues. */
    private static DefaultMQPushConsumer member(Clients clients, JSONObject args, Calls calls) throws Exception {
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(args.getLongValue("invisibleMillis"));
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(calls::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Has the member ask for its queues now. By itself it asks each 20 s, and each second if queues are missing. */
    private static void askForQueues(DefaultMQPushConsumer consumer) {
        consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
    }

    private static boolean has(Set<MessageQueue> queues, String topic) {
        return queues.stream().anyMatch(queue -> queue.getTopic().equals(topic));
    }

    /** Whether the member has queues of the topic in this mode, and none in the other one. */
    private static boolean isIn(String mode, DefaultMQPushConsumer consumer, String topic) {
        RebalanceImpl assigned = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        boolean pops = has(assigned.getPopProcessQueueTable().keySet(), topic);
        boolean pulls = has(assigned.getProcessQueueTable().keySet(), topic);
        return POP.equals(mode) ? pops && !pulls : pulls && !pops;
    }

    /** Sets the mode. A broker with a slow disk asks to try again. */
    private static void setMode(Clients clients, JSONObject args, String mode) throws Exception {
        String master = clients.masters().get(0);
        long until = PopWork.after(TURNED_SECONDS);
        while (true) {
            try {
                clients.admin().setMessageRequestMode(master, args.getString("topic"), args.getString("group"),
                    MessageRequestMode.valueOf(mode), -1, TIMEOUT_MILLIS);
                return;
            } catch (MQClientException refused) {
                if (refused.getResponseCode() != ResponseCode.SYSTEM_BUSY || System.nanoTime() > until) {
                    throw refused;
                }
            }
        }
    }

    /** Sets the mode, which members learn one after the other. Returns the time until all have it, -1 beyond a limit. */
    private static long turn(
            Clients clients, JSONObject args, String mode, List<DefaultMQPushConsumer> members) throws Exception {
        String topic = args.getString("topic");
        long since = System.nanoTime();
        setMode(clients, args, mode);
        return areIn(mode, members, topic) ? (System.nanoTime() - since) / 1_000_000 : -1;
    }

    /** Has members ask for their queues, one after the other. False if one of them does not get them in this mode. */
    private static boolean areIn(String mode, List<DefaultMQPushConsumer> members, String topic) throws Exception {
        boolean isTurned = true;
        for (DefaultMQPushConsumer member : members) {
            askForQueues(member);
            isTurned &= Clients.await(TURNED_SECONDS, () -> isIn(mode, member, topic));
        }
        return isTurned;
    }

    /** Sends to all queues in turn until its end. */
    private static final class Load implements AutoCloseable {
        /** Body and queue of each message, and its place there. */
        final List<List<Object>> sent = Collections.synchronizedList(new ArrayList<>());
        private final Thread thread = new Thread(this::work, "load");
        private final DefaultMQProducer producer;
        private final JSONObject args;
        private volatile boolean isEnding;
        private volatile Exception failure;

        Load(Clients clients, JSONObject args) throws Exception {
            producer = clients.producer("judge_pops");
            this.args = args;
            thread.setDaemon(true);
            thread.start();
        }

        private void work() {
            String topic = args.getString("topic");
            try {
                for (int number = 0; !isEnding; number++) {
                    String body = "body " + number;
                    SendResult result = producer.send(SendScenarios.message(topic, "TagA", "key-" + number, body));
                    sent.add(List.of(body, result.getMessageQueue().getQueueId(), result.getQueueOffset()));
                    Thread.sleep(args.getLongValue("pauseMillis"));
                }
            } catch (Exception thrown) {
                failure = thrown;
            }
        }

        @Override
        public void close() throws Exception {
            isEnding = true;
            thread.join();
            if (failure != null) {
                throw failure;
            }
        }
    }

    private static boolean awaitMore(IntSupplier count, int more, JSONObject args) throws InterruptedException {
        int wanted = count.getAsInt() + more;
        return Clients.await(args.getDoubleValue("waitSeconds"), () -> count.getAsInt() >= wanted);
    }

    private static List<DefaultMQPushConsumer> members(Clients clients, JSONObject args, Calls calls) throws Exception {
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int i = 0; i < args.getIntValue("members"); i++) {
            members.add(member(clients, args, calls));
        }
        return members;
    }

    /** The group turns from mode to mode, each time once its members have consumed some messages in the one before. */
    private static Object modes(Clients clients, JSONObject args) throws Exception {
        TopicOps.create(clients, args.getString("topic"), args.getIntValue("queues"));
        Calls calls = new Calls();
        List<Map<String, Object>> turns = new ArrayList<>();
        Load load = new Load(clients, args);
        try (load) {
            List<DefaultMQPushConsumer> members = members(clients, args, calls);
            for (Object mode : args.getJSONArray("modes")) {
                long millis = turn(clients, args, (String) mode, members);
                boolean isAtWork = awaitMore(() -> calls.count((String) mode), args.getIntValue("each"), args);
                turns.add(Map.of("mode", mode, "millis", millis, "isAtWork", isAtWork));
            }
        }
        return end(load, calls, args, "turns", turns);
    }

    /**
     * Members pop, while an operator sets the offset of the first queue back to each of `resets`. The result has the
     * number of calls before each of them.
     */
    private static Object resets(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Calls calls = new Calls();
        List<Integer> before = new ArrayList<>();
        setMode(clients, args, POP);
        Load load = new Load(clients, args);
        try (load) {
            areIn(POP, members(clients, args, calls), topic);
            for (Object offset : args.getJSONArray("resets")) {
                awaitMore(() -> calls.count(POP), args.getIntValue("each"), args);
                before.add(calls.all.size());
                clients.admin().resetOffsetByQueueId(
                    clients.masters().get(0), group, topic, 0, ((Number) offset).longValue());
            }
            awaitMore(() -> calls.count(POP), args.getIntValue("each"), args);
        }
        return end(load, calls, args, "before", before);
    }

    /** What was sent and consumed, once all that was sent has been, and a while later. */
    private static Map<String, Object> end(Load load, Calls calls, JSONObject args, String name, Object more)
            throws Exception {
        Clients.await(args.getDoubleValue("waitSeconds"), () -> calls.bodies.size() >= load.sent.size());
        Thread.sleep((long) (1000 * args.getDoubleValue("lookSeconds")));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put(name, more);
        seen.put("sent", load.sent);
        seen.put("calls", new ArrayList<>(calls.all));
        return seen;
    }

    private PopLoadScenarios() {
    }
}
