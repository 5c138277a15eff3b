import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way of sending that this broker serves, and those it must refuse. */
final class SendScenarios {
    private static final int ASYNC_COUNT = 100;
    private static final int ONEWAY_COUNT = 20;
    private static final int BATCH_COUNT = 10;

    static void register() {
        StockClient.register("send", SendScenarios::send);
        StockClient.register("compressed", SendScenarios::compressed);
        StockClient.register("bigBodies", SendScenarios::bigBodies);
        StockClient.register("refusedSends", SendScenarios::refusedSends);
        StockClient.register("fill", SendScenarios::fill);
    }

    static Message message(String topic, String tags, String keys, String body) {
        return new Message(topic, tags, keys, body.getBytes(StandardCharsets.UTF_8));
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getSendStatus().name());
        map.put("msgId", result.getMsgId());
        map.put("offsetMsgId", result.getOffsetMsgId());
        map.put("queueId", result.getMessageQueue().getQueueId());
        map.put("queueOffset", result.getQueueOffset());
        map.put("regionId", result.getRegionId());
        map.put("traceOn", result.isTraceOn());
        return map;
    }

    /** Sync, to a chosen queue, async, one-way, as a batch, and to a topic that does not exist yet. */
    private static Object send(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 4);
        DefaultMQProducer producer = clients.producer("judge_send");
        Map<String, Object> seen = new LinkedHashMap<>();

        Message first = message(topic, "TagA", "sync-0", "sync 0");
        first.putUserProperty("colour", "grün");
        first.setFlag(7);
        seen.put("sync", describe(producer.send(first)));
        MessageQueue queue = new MessageQueue(topic, brokerName(producer, topic), 3);
        seen.put("toQueue", describe(producer.send(message(topic, "TagB", "queue-0", "to queue 3"), queue)));
        seen.put("selected", describe(producer.send(
            message(topic, null, null, "selected"), (queues, m, arg) -> queues.get((int) arg), 2)));
        seen.put("async", sendAsync(producer, topic));
        for (int i = 0; i < ONEWAY_COUNT; i++) {
            producer.sendOneway(message(topic, "Oneway", "oneway-" + i, "oneway " + i));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH_COUNT; i++) {
            batch.add(message(topic, "Batch", "batch-" + i, "batch " + i));
        }
        seen.put("batch", describe(producer.send(batch)));
        String fresh = topic + "_auto";
        seen.put("auto", describe(producer.send(message(fresh, "TagA", "auto-0", "auto 0"))));
        seen.put("autoQueues", TopicOps.awaitRoute(clients, fresh).getQueueDatas().get(0).getWriteQueueNums());

        DefaultMQPullConsumer reader = clients.pull("judge_reader");
        int expected = 3 + ASYNC_COUNT + ONEWAY_COUNT + BATCH_COUNT;
        List<Map<String, Object>> stored = Fetch.topic(reader, topic);
        for (int round = 0; stored.size() < expected && round < 100; round++) {
            Thread.sleep(50); // one-way sends have no answer to wait for
            stored = Fetch.topic(reader, topic);
        }
        seen.put("stored", stored);
        seen.put("storedAuto", Fetch.topic(reader, fresh));
        return seen;
    }

    private static String brokerName(DefaultMQProducer producer, String topic) throws MQClientException {
        return producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
    }

    private static Map<String, Object> sendAsync(DefaultMQProducer producer, String topic) throws Exception {
        CountDownLatch done = new CountDownLatch(ASYNC_COUNT);
        List<Map<String, Object>> results = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger failed = new AtomicInteger();
        for (int i = 0; i < ASYNC_COUNT; i++) {
            producer.send(message(topic, "Async", "async-" + i, "async " + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results.add(describe(result));
                    done.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.incrementAndGet();
                    done.countDown();
                }
            });
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("answered", done.await(60, TimeUnit.SECONDS));
        seen.put("failed", failed.get());
        seen.put("results", results);
        return seen;
    }

    private static Object compressed(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        Map<String, Object> seen = new LinkedHashMap<>();
        for (CompressionType type : CompressionType.values()) {
            DefaultMQProducer producer = clients.producer("judge_compress_" + type);
            producer.setCompressType(type);
            Message message = message(topic, type.name(), null, (type.name() + " squeezes well. ").repeat(1000));
            Map<String, Object> sent = describe(producer.send(message));
            sent.put("bodySha256", Fetch.sha256((type.name() + " squeezes well. ").repeat(1000).getBytes("UTF-8")));
            seen.put(type.name(), sent);
        }
        seen.put("stored", Fetch.topic(clients.pull("judge_reader"), topic));
        return seen;
    }

    /** Bodies around the broker's limit, with the client's own limit lifted. */
    private static Object bigBodies(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        DefaultMQProducer producer = clients.producer("judge_big");
        producer.setMaxMessageSize(16 << 20);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendFailed(0);
        Map<String, Object> seen = new LinkedHashMap<>();
        for (Object entry : args.getJSONArray("sizes")) {
            byte[] body = new byte[((Number) entry).intValue()];
            new Random(body.length).nextBytes(body);
            Map<String, Object> outcome = outcome(() -> producer.send(new Message(topic, "Big", body)));
            outcome.put("bodySha256", Fetch.sha256(body));
            seen.put(entry.toString(), outcome);
        }
        seen.put("stored", Fetch.topic(clients.pull("judge_reader"), topic));
        return seen;
    }

    interface Sending {
        SendResult send() throws Exception;
    }

    /** What a send led to: its result, or the response code and remark with which it was refused. */
    static Map<String, Object> outcome(Sending sending) throws Exception {
        Map<String, Object> map = new LinkedHashMap<>();
        try {
            map.putAll(describe(sending.send()));
        } catch (MQBrokerException | MQClientException refused) {
            map.put("code", -1);
            map.put("remark", refused.toString());
            for (Throwable cause = refused; cause != null; cause = cause.getCause()) {
                if (cause instanceof MQBrokerException) {
                    map.put("code", ((MQBrokerException) cause).getResponseCode());
                    map.put("remark", ((MQBrokerException) cause).getErrorMessage());
                }
            }
        }
        return map;
    }

    /** Sends that need more than this broker has. */
    private static Object refusedSends(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        DefaultMQProducer producer = clients.producer("judge_refused");
        producer.setRetryTimesWhenSendFailed(0);
        Map<String, Object> seen = new LinkedHashMap<>();
        Message delayed = message(topic, null, null, "delayed");
        delayed.setDelayTimeLevel(18);
        seen.put("delay", outcome(() -> producer.send(delayed)));
        Message timed = message(topic, null, null, "timed");
        timed.setDelayTimeMs(60_000);
        seen.put("timerDelayMs", outcome(() -> producer.send(timed)));
        Message timedSeconds = message(topic, null, null, "timed");
        timedSeconds.setDelayTimeSec(60);
        seen.put("timerDelaySec", outcome(() -> producer.send(timedSeconds)));
        Message deliver = message(topic, null, null, "deliver");
        deliver.setDeliverTimeMs(System.currentTimeMillis() + 60_000);
        seen.put("timerDeliverMs", outcome(() -> producer.send(deliver)));
        seen.put("stored", Fetch.topic(clients.pull("judge_reader"), topic));
        return seen;
    }

    /** Plain filling: `count` messages with keys and tags, every tenth round a client batch, every 50th a large body. */
    private static Object fill(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        DefaultMQProducer producer = clients.producer("judge_fill");
        int count = args.getIntValue("count");
        int start = args.getIntValue("start");
        List<Map<String, Object>> sent = new ArrayList<>();
        for (int i = start; i < start + count; i++) {
            if (i % 10 == 9) {
                List<Message> batch = new ArrayList<>();
                for (int k = 0; k < 3; k++) {
                    batch.add(message(topic, "TagC", "key-" + i + " batch-" + k, "batch " + i + "/" + k));
                }
                sent.add(describe(producer.send(batch)));
            } else {
                String body = i % 50 == 0 ? ("body " + i + " ").repeat(1000) : "body " + i;
                sent.add(describe(producer.send(message(topic, i % 2 == 0 ? "TagA" : "TagB", "key-" + i, body))));
            }
        }
        return sent;
    }

    private SendScenarios() {
    }
}
