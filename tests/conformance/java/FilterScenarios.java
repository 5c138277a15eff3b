import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** SQL92 conditions: push, lite pull, plain pulls, and expressions that do not compile. */
final class FilterScenarios {
    private static final double WAIT_SECONDS = 60;
    private static final double QUIET_SECONDS = 1;

    static void register() {
        StockClient.register("filters", FilterScenarios::filters);
    }

    private static void send(DefaultMQProducer producer, String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "Tag" + i % 3, String.valueOf(i).getBytes());
            message.putUserProperty("amount", String.valueOf(i));
            if (i % 10 == 0) {
                message.putUserProperty("region", "eu");
            }
            producer.send(message);
        }
    }

    private static List<String> pushed(Clients clients, String topic, String expression, int wanted) throws Exception {
        List<String> bodies = PushScenarios.bodies();
        DefaultMQPushConsumer consumer = clients.push("push_" + topic);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener(PushScenarios.collectInto(bodies));
        consumer.start();
        Clients.await(WAIT_SECONDS, () -> bodies.size() >= wanted);
        Clients.await(QUIET_SECONDS, () -> bodies.size() > wanted);
        return bodies;
    }

    private static List<String> polled(Clients clients, String topic, String expression, int wanted) throws Exception {
        List<String> bodies = new ArrayList<>();
        DefaultLitePullConsumer consumer = clients.litePull("lite_" + topic);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.start();
        long deadline = System.nanoTime() + (long) (WAIT_SECONDS * 1e9);
        while (bodies.size() < wanted && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                bodies.add(new String(message.getBody()));
            }
        }
        for (MessageExt message : consumer.poll((long) (QUIET_SECONDS * 1000))) {
            bodies.add(new String(message.getBody()));
        }
        return bodies;
    }

    /** The client filters by SQL92 when a heartbeat has told it the broker's version. */
    private static PullResult pull(DefaultMQPullConsumer consumer, MessageQueue queue, String expression, long offset)
            throws Exception {
        long deadline = System.nanoTime() + (long) (WAIT_SECONDS * 1e9);
        while (true) {
            try {
                return consumer.pull(queue, MessageSelector.bySql(expression), offset, 32);
            } catch (MQClientException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    private static List<String> pulled(Clients clients, String topic, String expression) throws Exception {
        List<String> bodies = new ArrayList<>();
        DefaultMQPullConsumer consumer = clients.pull("pull_" + topic);
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = 0;
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = pull(consumer, queue, expression, offset);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(message -> bodies.add(new String(message.getBody())));
                }
                offset = result.getNextBeginOffset();
            }
        }
        return bodies;
    }

    private static Map<String, Object> refusal(Clients clients, String topic, String expression) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        DefaultMQPushConsumer consumer = clients.push("wrong_" + topic);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener(PushScenarios.collectInto(PushScenarios.bodies()));
        try {
            consumer.start();
            seen.put("started", true);
        } catch (MQClientException e) {
            Throwable cause = e.getCause();
            seen.put("code", cause instanceof MQBrokerException ? ((MQBrokerException) cause).getResponseCode() : e.getResponseCode());
        }
        return seen;
    }

    private static Object filters(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String expression = args.getString("expression");
        int wanted = args.getIntValue("wanted");
        TopicOps.create(clients, topic, 4);
        send(clients.producer("judge_filters"), topic, args.getIntValue("count"));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("push", pushed(clients, topic, expression, wanted));
        seen.put("litePull", polled(clients, topic, expression, wanted));
        seen.put("pull", pulled(clients, topic, expression));
        seen.put("wrong", refusal(clients, topic, "amount >>"));
        return seen;
    }
}
