import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.producer.RecallMessageHandle;

/** Timer messages and recalls. A body begins with its case, and a push consumer collects what arrives. */
final class TimerScenarios {
    private static final int BATCH = 10;
    private static final long RECALLED_AFTER_MILLIS = 10_000;
    private static final long STOCK_LATE_MILLIS = 1500;
    private static final long THREE_DAYS_SECONDS = 259_200;

    static void register() {
        StockClient.register("timers", TimerScenarios::timers);
    }

    /** The sends of one run. */
    private static final class Sends {
        private final DefaultMQProducer producer;
        private final String topic;
        /** By body: the time that was asked for. A delay counts from before the send. */
        final Map<String, Long> asked = new LinkedHashMap<>();
        final Map<String, Object> refused = new LinkedHashMap<>();

        Sends(DefaultMQProducer producer, String topic) {
            this.producer = producer;
            this.topic = topic;
        }

        Message message(String body) {
            return SendScenarios.message(topic, "TagA", "key-" + body.replace(' ', '-'), body);
        }

        SendResult send(Message message, long askedMillis) throws Exception {
            asked.put(new String(message.getBody()), askedMillis);
            return producer.send(message);
        }

        SendResult after(String body, long millis) throws Exception {
            Message message = message(body);
            message.setDelayTimeMs(millis);
            return send(message, System.currentTimeMillis() + millis);
        }

        void all(int each) throws Exception {
            for (int i = 0; i < each; i++) {
                Message seconds = message("seconds " + i);
                seconds.setDelayTimeSec(1);
                send(seconds, System.currentTimeMillis() + 1000);
                after("millis " + i, 700 + 29L * i);
                Message at = message("at " + i);
                long atMillis = System.currentTimeMillis() + 900 + 31L * i;
                at.setDeliverTimeMs(atMillis);
                send(at, atMillis);
                Message past = message("past " + i);
                past.setDeliverTimeMs(System.currentTimeMillis() - 1000);
                send(past, 0);
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                Message message = message("batch " + i);
                message.setDelayTimeSec(3600);
                asked.put("batch " + i, 0L);
                batch.add(message);
            }
            producer.send(batch);
            Message tooLong = message("tooLong");
            tooLong.setDelayTimeSec(THREE_DAYS_SECONDS + 1);
            refused.put("tooLong", SendScenarios.outcome(() -> producer.send(tooLong)));
            Message tooFar = message("tooFar");
            tooFar.setDeliverTimeMs(4_102_444_800_000L);
            refused.put("tooFar", SendScenarios.outcome(() -> producer.send(tooFar)));
        }

        /** The id that the recall returned, or the response code, or -1 where the client itself refuses. */
        Map<String, Object> recall(String handle) throws Exception {
            Map<String, Object> seen = new LinkedHashMap<>();
            try {
                seen.put("msgId", producer.recallMessage(topic, handle));
                seen.put("code", 0);
            } catch (MQBrokerException refusal) {
                seen.put("code", refusal.getResponseCode());
            } catch (MQClientException refusal) {
                seen.put("code", -1);
            }
            return seen;
        }
    }

    private static String handle(String topic, SendResult sent, long millis, String msgId) {
        String broker = sent.getMessageQueue().getBrokerName();
        return RecallMessageHandle.HandleV1.buildHandle(topic, broker, String.valueOf(millis), msgId);
    }

    private static Map<String, Object> recalls(Sends sends, int each) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        List<Object> outcomes = new ArrayList<>();
        SendResult sent = null;
        for (int i = 0; i < each; i++) {
            sent = sends.after("recalled " + i, RECALLED_AFTER_MILLIS);
            Map<String, Object> outcome = sends.recall(sent.getRecallHandle());
            outcome.put("sentId", sent.getMsgId());
            outcomes.add(outcome);
        }
        seen.put("recalled", outcomes);
        long now = System.currentTimeMillis();
        String id = sent.getMsgId();
        seen.put("twice", sends.recall(sent.getRecallHandle()));
        seen.put("unknown", sends.recall(handle(sends.topic, sent, now + 5000, "7F00000100002A9F0000000000000001")));
        seen.put("otherTopic", sends.recall(handle(sends.topic + "_other", sent, now + 5000, id)));
        seen.put("past", sends.recall(handle(sends.topic, sent, now - 5000, id)));
        seen.put("tooFar", sends.recall(handle(sends.topic, sent, now + 10 * THREE_DAYS_SECONDS * 1000, id)));
        seen.put("noHandle", sends.recall("no handle"));
        return seen;
    }

    private static Object timers(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int each = args.getIntValue("each");
        TopicOps.create(clients, topic, 4);
        List<MessageExt> messages = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push("timers_" + topic);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            messages.addAll(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Sends sends = new Sends(clients.producer("judge_timers"), topic);
        Map<String, Object> seen = new LinkedHashMap<>();
        sends.all(each);
        int wanted = sends.asked.size();
        seen.put("recalls", recalls(sends, each));
        long quietAt = System.currentTimeMillis() + RECALLED_AFTER_MILLIS + STOCK_LATE_MILLIS;
        Clients.await(args.getDoubleValue("waitSeconds"), () -> messages.size() >= wanted);
        Thread.sleep(Math.max(0, quietAt - System.currentTimeMillis())); // recalled messages must not come
        Map<String, List<Long>> received = new LinkedHashMap<>();
        synchronized (messages) {
            for (MessageExt message : messages) {
                received.computeIfAbsent(new String(message.getBody()), body -> new ArrayList<>())
                    .add(message.getStoreTimestamp());
            }
        }
        seen.put("asked", sends.asked);
        seen.put("refused", sends.refused);
        seen.put("received", received);
        return seen;
    }

    private TimerScenarios() {
    }
}
