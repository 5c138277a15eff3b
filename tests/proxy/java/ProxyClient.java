import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Cases of the 5.x Java client through RocketMQ's proxy. Arguments: host:port of the proxy, prefix of topics and groups,
 * messages of a case (a multiple of 12). Prints one JSON object of counts by case, as python/proxy_client.py does.
 */
public final class ProxyClient {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(30);
    private static final double WAIT_SECONDS = 150;
    private static final double QUIET_SECONDS = 5;
    private static final double BEYOND_INVISIBLE_SECONDS = 40;
    private static final long EARLY_MS = 1100;
    private static ClientConfiguration configuration;
    private static String prefix;
    private static int count;
    private static Producer producer;
    private static final Set<String> CHECKED = ConcurrentHashMap.newKeySet();

    private interface Case {
        void run(Map<String, Integer> counts) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .setRequestTimeout(Duration.ofSeconds(30)).build();
        prefix = arguments[1];
        count = Integer.parseInt(arguments[2]);
        producer = started(() -> PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(prefix + "Normal", prefix + "Transactions", prefix + "Mixed")
            .setTransactionChecker(ProxyClient::check).build());
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("simple consumer", counts -> simple("Normal", counts));
        cases.put("topic without a type", counts -> simple("Untyped", counts));
        cases.put("invisible time", ProxyClient::invisible);
        cases.put("push consumer", ProxyClient::push);
        cases.put("dead letters", ProxyClient::dead);
        cases.put("orderly push consumer", ProxyClient::fifo);
        cases.put("orderly simple consumer", ProxyClient::simpleFifo);
        cases.put("delay", ProxyClient::delay);
        cases.put("recall", ProxyClient::recall);
        cases.put("transactions", ProxyClient::transactions);
        cases.put("long polls", ProxyClient::polls);
        cases.put("renewal", counts -> renewal("Renewal", null, counts));
        cases.put("orderly renewal", counts -> renewal("RenewalFifo", "one", counts));
        cases.put("filters", ProxyClient::filters);
        cases.put("refused sends", ProxyClient::refusals);
        cases.put("topic of mixed types", ProxyClient::mixed);
        System.out.println(json(run(cases)));
        System.exit(0);
    }

    private static TransactionResolution check(MessageView message) {
        String body = Deliveries.text(message);
        CHECKED.add(body);
        return body.contains("commit") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
    }

    private static Map<String, Object> run(Map<String, Case> cases) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        Map<String, Future<Object>> running = new LinkedHashMap<>();
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            running.put(each.getKey(), threads.submit(() -> {
                Map<String, Integer> counts = new LinkedHashMap<>();
                try {
                    each.getValue().run(counts);
                    return counts;
                } catch (Throwable error) {
                    error.printStackTrace();
                    return counts + " " + error;
                }
            }));
        }
        Map<String, Object> results = new LinkedHashMap<>();
        for (Map.Entry<String, Future<Object>> each : running.entrySet()) {
            results.put(each.getKey(), each.getValue().get());
        }
        return results;
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(prefix + topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static int send(int messages, Function<Integer, MessageBuilder> made) throws Exception {
        for (int number = 0; number < messages; number++) {
            Message message = made.apply(number).build();
            patiently(() -> producer.send(message));
        }
        return messages;
    }

    /** Tries again if the proxy is too slow, or does not know the topic or its type yet. */
    private static <T> T patiently(Callable<T> call) throws Exception {
        for (long deadline = System.nanoTime() + (long) (WAIT_SECONDS * 1e9);;) {
            try {
                return call.call();
            } catch (ClientException | IllegalStateException | IllegalArgumentException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
            }
            Thread.sleep(500);
        }
    }

    /** One client starts at a time: a busy machine has no time for many. */
    private static <T> T started(Callable<T> start) throws Exception {
        return patiently(() -> {
            synchronized (PROVIDER) {
                return start.call();
            }
        });
    }

    private static SimpleConsumer simpleConsumer(String topic, String group, FilterExpression wanted) throws Exception {
        return started(() -> PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, wanted)).build());
    }

    private static SimpleConsumer simpleConsumer(String topic) throws Exception {
        return simpleConsumer(prefix + topic, prefix + topic, FilterExpression.SUB_ALL);
    }

    private static PushConsumer pushConsumer(String topic, Deliveries deliveries) throws Exception {
        return started(() -> PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(prefix + topic).setMessageListener(deliveries)
            .setSubscriptionExpressions(Map.of(prefix + topic, FilterExpression.SUB_ALL)).build());
    }

    /** Receives until `wanted` bodies have come at such an attempt or a later one, at most so many seconds. */
    private static List<MessageView> receive(SimpleConsumer consumer, int wanted, int attempt, double seconds)
            throws Exception {
        List<MessageView> messages = new ArrayList<>();
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (bodies(messages) < wanted && System.nanoTime() < deadline) {
            List<MessageView> received = consumer.receive(32, INVISIBLE);
            received.stream().filter(each -> each.getDeliveryAttempt() >= attempt).forEach(messages::add);
        }
        return messages;
    }

    /** Bodies count once: a client may send a message twice that a busy machine has stored too late. */
    private static int bodies(List<MessageView> messages) {
        return (int) messages.stream().map(Deliveries::text).distinct().count();
    }

    private static int acknowledge(SimpleConsumer consumer, List<MessageView> messages) throws ClientException {
        for (MessageView message : messages) {
            consumer.ack(message);
        }
        return bodies(messages);
    }

    /** Receives and acknowledges until `wanted` bodies have come, then some seconds for more. */
    private static int consume(SimpleConsumer consumer, int wanted) throws Exception {
        List<MessageView> messages = new ArrayList<>();
        for (double seconds : new double[] {WAIT_SECONDS, QUIET_SECONDS}) {
            long deadline = System.nanoTime() + (long) (seconds * 1e9);
            while (bodies(messages) < wanted && System.nanoTime() < deadline) {
                List<MessageView> received = consumer.receive(32, INVISIBLE);
                acknowledge(consumer, received);
                messages.addAll(received);
            }
            wanted = Integer.MAX_VALUE;
        }
        return bodies(messages);
    }

    /** The group is new, and the topic has messages already. */
    private static void simple(String topic, Map<String, Integer> counts) throws Exception {
        counts.put("sent", send(count, number -> message(topic, "" + number)));
        SimpleConsumer consumer = simpleConsumer(topic);
        List<MessageView> messages = receive(consumer, count, 1, WAIT_SECONDS);
        counts.put("received", bodies(messages));
        counts.put("acknowledged", acknowledge(consumer, messages));
        counts.put("again", bodies(receive(consumer, 1, 2, BEYOND_INVISIBLE_SECONDS)));
        consumer.close();
    }

    private static void invisible(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = simpleConsumer("Invisible");
        send(count, number -> message("Invisible", "" + number));
        List<MessageView> first = receive(consumer, count, 1, WAIT_SECONDS);
        counts.put("received", bodies(first));
        for (MessageView message : first.subList(0, count / 2)) {
            consumer.changeInvisibleDuration(message, Duration.ofSeconds(1));
        }
        List<MessageView> again = receive(consumer, count, 2, WAIT_SECONDS);
        counts.put("second attempts", bodies(again));
        counts.put("acknowledged", acknowledge(consumer, again));
        consumer.close();
    }

    private static void push(Map<String, Integer> counts) throws Exception {
        Deliveries deliveries = new Deliveries((body, attempt) -> Integer.parseInt(body) % 3 != 0 || attempt > 1);
        pushConsumer("Push", deliveries);
        counts.put("sent", send(count, number -> message("Push", "" + number)));
        deliveries.await(count + count / 3, WAIT_SECONDS, QUIET_SECONDS);
        counts.put("deliveries", deliveries.total());
        counts.put("second attempts", deliveries.secondAttempts());
    }

    /** The topic comes into being with the first dead letter. */
    private static SimpleConsumer deadLetterConsumer(String group) throws Exception {
        return simpleConsumer("%DLQ%" + group, group + "-dead", FilterExpression.SUB_ALL);
    }

    private static void dead(Map<String, Integer> counts) throws Exception {
        Deliveries deliveries = new Deliveries((body, attempt) -> false);
        pushConsumer("Dead", deliveries);
        int sent = send(count / 3, number -> message("Dead", "" + number));
        counts.put("sent", sent);
        SimpleConsumer consumer = deadLetterConsumer(prefix + "Dead");
        counts.put("dead", consume(consumer, sent));
        counts.put("deliveries", deliveries.total());
        consumer.close();
    }

    /** Of each message group, the second message fails once and the third one always. */
    private static void fifo(Map<String, Integer> counts) throws Exception {
        int groups = 3;
        Deliveries deliveries = new Deliveries((body, attempt) -> body.endsWith(" 1") ? attempt > 1 : !body.endsWith(" 2"));
        pushConsumer("Fifo", deliveries);
        counts.put("sent", send(count, number -> message("Fifo", number % groups + " " + number / groups)
            .setMessageGroup("" + number % groups)));
        deliveries.await(count + 2 * groups, WAIT_SECONDS, QUIET_SECONDS);
        counts.put("deliveries", deliveries.total());
        counts.put("out of order", deliveries.outOfOrder());
        SimpleConsumer consumer = deadLetterConsumer(prefix + "Fifo");
        counts.put("dead", consume(consumer, groups));
        consumer.close();
    }

    /** All messages have one message group, so that they are in one queue. */
    private static void simpleFifo(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = simpleConsumer("SimpleFifo");
        int sent = send(count / 3, number -> message("SimpleFifo", "" + number).setMessageGroup("one"));
        int inOrder = 0;
        int beside = 0;
        for (int number = 0; number < sent; number++) {
            List<MessageView> messages = new ArrayList<>();
            long deadline = System.nanoTime() + (long) (WAIT_SECONDS * 1e9);
            while (messages.isEmpty() && System.nanoTime() < deadline) {
                messages.addAll(consumer.receive(1, Duration.ofSeconds(60)));
            }
            inOrder += Deliveries.text(messages.get(0)).equals("" + number) ? 1 : 0;
            if (number == 0) {
                beside = consumer.receive(1, INVISIBLE).size();
            }
            acknowledge(consumer, messages);
        }
        counts.put("sent", sent);
        counts.put("in order", inOrder);
        counts.put("beside an open one", beside);
        consumer.close();
    }

    private static void delay(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = simpleConsumer("Delay");
        long dueMs = System.currentTimeMillis() + 5000;
        counts.put("sent", send(count, number -> message("Delay", "" + number).setDeliveryTimestamp(dueMs)));
        List<MessageView> messages = receive(consumer, 1, 1, WAIT_SECONDS);
        int early = System.currentTimeMillis() < dueMs - EARLY_MS ? messages.size() : 0;
        int first = acknowledge(consumer, messages);
        counts.put("received", first + consume(consumer, count - first));
        counts.put("early", early);
        consumer.close();
    }

    private static void recall(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = simpleConsumer("Recall");
        long dueMs = System.currentTimeMillis() + 90_000;
        int recalled = 0;
        for (int number = 0; number < count; number++) {
            Message message = message("Recall", "" + number).setDeliveryTimestamp(dueMs).build();
            String handle = patiently(() -> producer.send(message)).getRecallHandle();
            if (number % 2 == 0) {
                producer.recallMessage(prefix + "Recall", handle);
                recalled++;
            }
        }
        counts.put("sent", count);
        counts.put("recalled", recalled);
        counts.put("received", consume(consumer, count - recalled));
        consumer.close();
    }

    private static void transactions(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = simpleConsumer("Transactions");
        String[] kinds = {"commit", "rollback", "orphan-commit", "orphan-rollback"};
        for (int number = 0; number < count; number++) {
            String kind = kinds[number % kinds.length];
            Transaction transaction = producer.beginTransaction();
            producer.send(message("Transactions", kind + " " + number).build(), transaction);
            if (kind.equals("commit")) {
                transaction.commit();
            } else if (kind.equals("rollback")) {
                transaction.rollback();
            }
        }
        counts.put("sent", count);
        counts.put("received", consume(consumer, count / 2));
        for (long deadline = System.nanoTime() + (long) (WAIT_SECONDS * 1e9); System.nanoTime() < deadline;) {
            if (orphansChecked() == count / 2) {
                break;
            }
            Thread.sleep(50);
        }
        counts.put("orphans checked", orphansChecked());
        consumer.close();
    }

    private static int orphansChecked() {
        return (int) CHECKED.stream().filter(body -> body.startsWith("orphan")).count();
    }

    /** A receive waits when its message is sent. */
    private static void polls(Map<String, Integer> counts) throws Exception {
        SimpleConsumer consumer = started(() -> PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(prefix + "Polls").setAwaitDuration(Duration.ofSeconds(20))
            .setSubscriptionExpressions(Map.of(prefix + "Polls", FilterExpression.SUB_ALL)).build());
        counts.put("without a message", consumer.receive(32, INVISIBLE).size());
        int received = 0;
        for (int number = 0; number < count / 4; number++) {
            CompletableFuture<List<MessageView>> waiting = consumer.receiveAsync(32, INVISIBLE);
            Thread.sleep(1000);
            producer.send(message("Polls", "" + number).build());
            received += acknowledge(consumer, waiting.get());
        }
        counts.put("received", received);
        consumer.close();
    }

    /** The listener takes longer than the invisible time of the proxy, which renews it. */
    private static void renewal(String topic, String group, Map<String, Integer> counts) throws Exception {
        Deliveries deliveries = new Deliveries((body, attempt) -> {
            Thread.sleep(45_000);
            return true;
        });
        pushConsumer(topic, deliveries);
        counts.put("sent", send(2, number -> {
            MessageBuilder message = message(topic, "" + number);
            return group == null ? message : message.setMessageGroup(group);
        }));
        deliveries.await(2, WAIT_SECONDS, 60);
        counts.put("deliveries", deliveries.total());
    }

    private static void filters(Map<String, Integer> counts) throws Exception {
        send(count, number -> message("Filters", "" + number).setTag(number % 2 == 0 ? "even" : "odd")
            .addProperty("number", "" + number));
        String sql = "number >= " + count / 3;
        SimpleConsumer tags = simpleConsumer(prefix + "Filters", prefix + "Tags", new FilterExpression("even"));
        counts.put("by tag", consume(tags, count / 2));
        SimpleConsumer sql92 = simpleConsumer(prefix + "Filters", prefix + "Sql",
            new FilterExpression(sql, FilterExpressionType.SQL92));
        counts.put("by condition", consume(sql92, count - count / 3));
        tags.close();
        sql92.close();
    }

    private static void refusals(Map<String, Integer> counts) {
        int refused = 0;
        for (String topic : List.of("Fifo", "Delay", "Transactions", "Missing")) {
            try {
                producer.send(message(topic, "a normal message").build());
            } catch (ClientException | IllegalArgumentException error) {
                refused++;
            }
        }
        counts.put("refused", refused);
    }

    private static void mixed(Map<String, Integer> counts) throws Exception {
        producer.send(message("Mixed", "normal").build());
        producer.send(message("Mixed", "fifo").setMessageGroup("one").build());
        producer.send(message("Mixed", "delay").setDeliveryTimestamp(System.currentTimeMillis() + 3000).build());
        Transaction transaction = producer.beginTransaction();
        producer.send(message("Mixed", "commit").build(), transaction);
        transaction.commit();
        SimpleConsumer consumer = simpleConsumer("Mixed");
        List<MessageView> messages = receive(consumer, 4, 1, WAIT_SECONDS);
        counts.put("received", bodies(messages));
        consumer.close();
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            List<String> entries = new ArrayList<>();
            ((Map<?, ?>) value).forEach((name, of) -> entries.add(json(name) + ": " + json(of)));
            return "{" + String.join(", ", entries) + "}";
        }
        if (value instanceof Integer) {
            return value.toString();
        }
        return '"' + value.toString().replaceAll("[^ -~]|[\"\\\\]", "'") + '"';
    }
}
