import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageExt;

/** Retries up to the dead letters: a message's body begins with the outcome that its consumer has for it. */
final class RetryScenarios {
    private static final double QUIET_SECONDS = 3;

    static void register() {
        StockClient.register("retries", RetryScenarios::concurrent);
        StockClient.register("orderlyRetries", RetryScenarios::orderly);
    }

    /** Attempts by body: the reconsumeTimes of each, in order. */
    private static final class Attempts {
        private final Map<String, List<Integer>> byBody = new ConcurrentHashMap<>();

        int add(MessageExt message) {
            List<Integer> times = byBody.computeIfAbsent(
                new String(message.getBody()), body -> Collections.synchronizedList(new ArrayList<>()));
            times.add(message.getReconsumeTimes());
            return times.size();
        }

        int total() {
            return byBody.values().stream().mapToInt(List::size).sum();
        }
    }

    private static List<Map<String, Object>> read(Clients clients, String topic, int count, double seconds)
            throws Exception {
        TopicOps.awaitRoute(clients, topic);
        DefaultMQPullConsumer reader = clients.pull("judge_reader");
        AtomicReference<List<Map<String, Object>>> found = new AtomicReference<>(List.of());
        Clients.await(seconds, () -> {
            try {
                found.set(Fetch.topic(reader, topic));
            } catch (Exception notYet) {
                return false;
            }
            return found.get().size() >= count;
        });
        return found.get();
    }

    private static Map<String, Object> report(Clients clients, JSONObject args, String group, Attempts attempts)
            throws Exception {
        int attemptsWanted = args.getIntValue("attempts");
        double seconds = args.getDoubleValue("waitSeconds");
        Clients.await(seconds, () -> attempts.total() >= attemptsWanted);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("dead", read(clients, MixAll.getDLQTopic(group), args.getIntValue("dead"), seconds));
        Clients.await(QUIET_SECONDS, () -> attempts.total() > attemptsWanted);
        seen.put("attempts", new TreeMap<>(attempts.byBody));
        seen.put("sent", read(clients, args.getString("topic"), 1, seconds));
        seen.put("retried", read(clients, MixAll.getRetryTopic(group), args.getIntValue("retried"), seconds));
        return seen;
    }

    /** "fails" fails each time, "third" up to its third attempt, "at-once" asks for the dead letters. */
    private static Object concurrent(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        TopicOps.create(clients, topic, 1);
        Attempts attempts = new Attempts();
        DefaultMQPushConsumer consumer = clients.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            int attempt = attempts.add(message);
            switch (new String(message.getBody()).split(" ")[0]) {
                case "fails":
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                case "third":
                    return attempt < 3
                        ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                case "at-once":
                    context.setDelayLevelWhenNextConsume(-1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                default:
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();
        DefaultMQProducer producer = clients.producer("judge_retries");
        for (Object outcome : args.getJSONArray("outcomes")) {
            for (int i = 0; i < args.getIntValue("each"); i++) {
                producer.send(SendScenarios.message(topic, "TagA", outcome + "-key-" + i, outcome + " " + i));
            }
        }
        return report(clients, args, group, attempts);
    }

    /** Numbers 0..n in each of two queues. Number 2 of queue 0 fails each time, number 3 of queue 1 once. */
    private static Object orderly(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        TopicOps.create(clients, topic, 2);
        Attempts attempts = new Attempts();
        Map<Integer, List<String>> order = new HashMap<>();
        order.put(0, Collections.synchronizedList(new ArrayList<>()));
        order.put(1, Collections.synchronizedList(new ArrayList<>()));
        DefaultMQPushConsumer consumer = clients.push(group);
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(args.getIntValue("reconsumeMax"));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            int attempt = attempts.add(message);
            String body = new String(message.getBody());
            order.get(context.getMessageQueue().getQueueId()).add(body);
            return body.equals("0-2") || body.equals("1-3") && attempt == 1
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = clients.producer("judge_retries");
        for (int number = 0; number < args.getIntValue("each"); number++) {
            for (int queue = 0; queue < 2; queue++) {
                String body = queue + "-" + number;
                producer.send(SendScenarios.message(topic, "TagA", "key-" + body, body),
                    (queues, message, argument) -> queues.get((int) argument), queue);
            }
        }
        Map<String, Object> seen = report(clients, args, group, attempts);
        seen.put("order", List.of(order.get(0), order.get(1)));
        return seen;
    }

    private RetryScenarios() {
    }
}
