import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Retries up to the dead letters, a delay level, transactions and an SQL92 condition with a released client.
 * Arguments: name server, prefix of topics and groups, messages of each kind. Prints one JSON object, as go/main.go does.
 */
public final class ReleasedClient {
    private static final int RETRIES = 2;
    private static final int LEVEL = 2;
    private static final double WAIT_SECONDS = 60;
    private static final double QUIET_SECONDS = 1;
    private static String namesrv;
    private static String prefix;
    private static int count;

    /** Values by body, in the order of arrival. */
    private static final class Seen {
        private final Map<String, List<Object>> byBody = new TreeMap<>();

        synchronized int add(String body, Object value) {
            List<Object> values = byBody.computeIfAbsent(body, key -> new ArrayList<>());
            values.add(value);
            return values.size();
        }

        /** Equal values of a body count once. */
        synchronized int total() {
            return byBody.values().stream().mapToInt(values -> Set.copyOf(values).size()).sum();
        }

        /** Waits for `wanted` values, then a moment for more. */
        synchronized Map<String, List<Object>> settled(int wanted) throws InterruptedException {
            await(WAIT_SECONDS, () -> total() >= wanted);
            await(QUIET_SECONDS, () -> total() > wanted);
            return copied();
        }

        synchronized Map<String, List<Object>> copied() {
            return new TreeMap<>(byBody);
        }

        private void await(double seconds, BooleanSupplier condition) throws InterruptedException {
            long deadline = System.nanoTime() + (long) (seconds * 1e9);
            while (!condition.getAsBoolean() && System.nanoTime() < deadline) {
                wait(10);
            }
        }
    }

    private interface Handler {
        boolean succeeds(MessageExt message, String body);
    }

    private static DefaultMQPushConsumer consumer(String group, String topic, MessageSelector selector, Handler handler)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setPollNameServerInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(RETRIES);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            handler.succeeds(messages.get(0), new String(messages.get(0).getBody()))
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
        return consumer;
    }

    private static void configure(DefaultMQProducer producer) throws MQClientException {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(producer.getProducerGroup());
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(20);
        producer.start();
    }

    private static DefaultMQProducer producer(String name) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(prefix + name);
        configure(producer);
        return producer;
    }

    /**
     * "fails" fails each time, "once" the first time, "good" never. "again" has the deliveries of records that the client
     * has had before: it repeats them when it gets no answer to what it sends back.
     */
    private static Object retries() throws Exception {
        Seen attempts = new Seen();
        Seen dead = new Seen();
        Map<Long, Boolean> results = new ConcurrentHashMap<>();
        Seen again = new Seen();
        String group = prefix + "RetryGroup";
        consumer(group, prefix + "Retries", MessageSelector.byTag("*"), (message, body) -> {
            Boolean known = results.get(message.getCommitLogOffset());
            if (known != null) {
                again.add(body, message.getReconsumeTimes());
                return known;
            }
            int attempt = attempts.add(body, message.getReconsumeTimes());
            boolean result = body.startsWith("good") || body.startsWith("once") && attempt > 1;
            results.put(message.getCommitLogOffset(), result);
            return result;
        });
        DefaultMQProducer producer = producer("RetryProducer");
        for (String outcome : List.of("fails", "once", "good")) {
            for (int i = 0; i < count; i++) {
                producer.send(new Message(prefix + "Retries", (outcome + " " + i).getBytes()));
            }
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("attempts", attempts.settled(count * (RETRIES + 1 + 2 + 1)));
        consumer(prefix + "DeadGroup", "%DLQ%" + group, MessageSelector.byTag("*"),
            (message, body) -> dead.add(body, message.getReconsumeTimes()) > 0);
        seen.put("dead", dead.settled(count));
        seen.put("again", again.copied());
        return seen;
    }

    /** Milliseconds from the begin of each send to the message's store time. */
    private static Object delays() throws Exception {
        Seen waits = new Seen();
        Map<String, Long> began = new ConcurrentHashMap<>();
        consumer(prefix + "DelayGroup", prefix + "Delays", MessageSelector.byTag("*"),
            (message, body) -> waits.add(body, message.getStoreTimestamp() - began.get(body)) > 0);
        DefaultMQProducer producer = producer("DelayProducer");
        for (int i = 0; i < count; i++) {
            Message message = new Message(prefix + "Delays", String.valueOf(i).getBytes());
            message.setDelayTimeLevel(LEVEL);
            began.put(String.valueOf(i), System.currentTimeMillis());
            producer.send(message);
        }
        return waits.settled(count);
    }

    private static LocalTransactionState state(String outcome) {
        switch (outcome) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    /**
     * Bodies begin with the outcome of the local transaction. The check's outcome may follow a hyphen. A broker may check
     * a half whose end it has not yet seen to.
     */
    private static Object transactions() throws Exception {
        Seen received = new Seen();
        Seen checks = new Seen();
        consumer(prefix + "TransactionGroup", prefix + "Transactions", MessageSelector.byTag("*"),
            (message, body) -> received.add(body, 1) > 0);
        TransactionMQProducer producer = new TransactionMQProducer(prefix + "TransactionProducer");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(new String(message.getBody()).split(" ")[0]);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody());
                checks.add(body, 1);
                return state(body.split(" ")[0].replace("unknown-", ""));
            }
        });
        configure(producer);
        for (String outcome : List.of("commit", "rollback", "unknown-commit", "unknown-rollback")) {
            for (int i = 0; i < count; i++) {
                producer.sendMessageInTransaction(
                    new Message(prefix + "Transactions", (outcome + " " + i).getBytes()), null);
            }
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("received", received.settled(2 * count));
        seen.put("checks", checks.settled(2 * count));
        return seen;
    }

    /** One of two messages matches. */
    private static Object filters() throws Exception {
        Seen received = new Seen();
        consumer(prefix + "FilterGroup", prefix + "Filters",
            MessageSelector.bySql("amount BETWEEN 0 AND " + (count - 1) + " AND region IS NOT NULL"),
            (message, body) -> received.add(body, 1) > 0);
        DefaultMQProducer producer = producer("FilterProducer");
        for (int i = 0; i < 2 * count; i++) {
            Message message = new Message(prefix + "Filters", String.valueOf(i).getBytes());
            message.putUserProperty("amount", String.valueOf(i));
            message.putUserProperty("region", "eu");
            producer.send(message);
        }
        return received.settled(count);
    }

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[0];
        prefix = arguments[1];
        count = Integer.parseInt(arguments[2]);
        Map<String, Callable<Object>> scenarios = new LinkedHashMap<>();
        scenarios.put("retries", ReleasedClient::retries);
        scenarios.put("delays", ReleasedClient::delays);
        scenarios.put("transactions", ReleasedClient::transactions);
        scenarios.put("filters", ReleasedClient::filters);
        ExecutorService pool = Executors.newCachedThreadPool();
        Map<String, Future<Object>> running = new LinkedHashMap<>();
        scenarios.forEach((name, scenario) -> running.put(name, pool.submit(scenario)));
        Map<String, Object> seen = new LinkedHashMap<>();
        for (String name : running.keySet()) {
            seen.put(name, running.get(name).get());
        }
        System.out.println(JSON.toJSONString(seen));
        System.exit(0);
    }
}
