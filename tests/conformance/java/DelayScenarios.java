import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Delay levels: messages of every level, and what a push consumer gets of them. */
final class DelayScenarios {
    private static final double WAIT_SECONDS = 60;
    private static final double QUIET_SECONDS = 1;

    static void register() {
        StockClient.register("delays", DelayScenarios::delays);
    }

    private static Map<String, Object> described(MessageExt message) {
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("body", new String(message.getBody()));
        seen.put("level", message.getDelayTimeLevel());
        seen.put("keys", message.getKeys());
        seen.put("stored", message.getStoreTimestamp());
        return seen;
    }

    private static Map<String, Long> send(DefaultMQProducer producer, MessageQueue queue, int levels, int each)
            throws Exception {
        Map<String, Long> began = new LinkedHashMap<>();
        for (int number = 0; number < each; number++) {
            for (int level = 1; level <= levels; level++) {
                String body = level + "-" + number;
                Message message = new Message(queue.getTopic(), "TagA", "key" + body, body.getBytes());
                message.setDelayTimeLevel(level);
                began.put(body, System.currentTimeMillis());
                producer.send(message, queue);
            }
        }
        return began;
    }

    private static Object delays(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        DefaultMQProducer producer = clients.producer("judge_delays");
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        List<MessageExt> messages = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push("delays_" + topic);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            messages.addAll(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Map<String, Long> began = send(producer, queue, args.getIntValue("levels"), args.getIntValue("each"));
        Clients.await(WAIT_SECONDS, () -> messages.size() >= began.size());
        Clients.await(QUIET_SECONDS, () -> messages.size() > began.size());
        List<MessageExt> ordered = new ArrayList<>(messages);
        ordered.sort(Comparator.comparingLong(MessageExt::getQueueOffset));
        List<Map<String, Object>> received = new ArrayList<>();
        ordered.forEach(message -> received.add(described(message)));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("began", began);
        seen.put("received", received);
        return seen;
    }
}
