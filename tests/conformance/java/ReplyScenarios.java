import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Both ends of requests and replies. */
final class ReplyScenarios {
    private static final long REQUEST_MILLIS = 60_000;
    private static final long SILENCE_MILLIS = 3_000;

    static void register() {
        StockClient.register("answerRequests", ReplyScenarios::answer);
        StockClient.register("askRequests", ReplyScenarios::ask);
        StockClient.register("askAndLeave", ReplyScenarios::askAndLeave);
    }

    /** A consumer that replies "re: BODY" to `count` requests. "silence" gets no reply, "slow" one after a while. */
    private static Object answer(Clients clients, JSONObject args) throws Exception {
        int count = args.getIntValue("count");
        List<String> replied = Collections.synchronizedList(new ArrayList<>());
        Map<String, String> failed = new ConcurrentHashMap<>();
        AtomicInteger done = new AtomicInteger();
        DefaultMQProducer producer = clients.producer("repliers");
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                try {
                    if (body.startsWith("slow")) {
                        Thread.sleep(2 * SILENCE_MILLIS);
                    }
                    if (!body.startsWith("silence")) {
                        Message reply = MessageUtil.createReplyMessage(message, ("re: " + body).getBytes());
                        replied.add(producer.send(reply).getSendStatus() + " " + body);
                    }
                } catch (Exception refusal) { // of the last attempt
                    Throwable cause = refusal.getCause();
                    failed.put(body, cause instanceof MQBrokerException
                        ? ((MQBrokerException) cause).getErrorMessage() : refusal.toString());
                }
                done.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Clients.await(args.getDoubleValue("waitSeconds"), () -> done.get() >= count);
        Collections.sort(replied);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("replied", replied);
        seen.put("failed", new TreeMap<>(failed));
        return seen;
    }

    /** Replies and failures of `count` requests, and of one that gets no reply. A null is no reply: #9608. */
    private static Object ask(Clients clients, JSONObject args) throws Exception {
        int count = args.getIntValue("count");
        Map<String, String> replies = new ConcurrentHashMap<>();
        Map<String, String> failed = new ConcurrentHashMap<>();
        DefaultMQProducer producer = clients.producer("askers");
        for (int i = 0; i < count; i++) {
            request(producer, args.getString("topic"), "question " + i, REQUEST_MILLIS, replies, failed);
        }
        request(producer, args.getString("topic"), "silence", SILENCE_MILLIS, replies, failed);
        Clients.await(args.getDoubleValue("waitSeconds"), () -> replies.size() + failed.size() > count);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("replies", new TreeMap<>(replies));
        seen.put("failed", new TreeMap<>(failed));
        return seen;
    }

    /** A requester that is gone when its reply comes. */
    private static Object askAndLeave(Clients clients, JSONObject args) throws Exception {
        DefaultMQProducer producer = clients.producer("leavers");
        request(producer, args.getString("topic"), "slow", REQUEST_MILLIS, new ConcurrentHashMap<>(),
            new ConcurrentHashMap<>());
        Thread.sleep(SILENCE_MILLIS / 3);
        return "left";
    }

    private static void request(
        DefaultMQProducer producer, String topic, String body, long millis, Map<String, String> replies,
        Map<String, String> failed) throws Exception {
        producer.request(new Message(topic, body.getBytes()), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    replies.put(body, new String(reply.getBody()));
                }
            }

            @Override
            public void onException(Throwable cause) {
                failed.put(body, cause instanceof RequestTimeoutException ? "time-out" : cause.toString());
            }
        }, millis);
    }
}
