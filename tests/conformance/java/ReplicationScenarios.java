import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** What producers and consumers see of a group of a master and slaves. */
final class ReplicationScenarios {
    static void register() {
        StockClient.register("sendTimed", ReplicationScenarios::sendTimed);
        StockClient.register("sendUntil", ReplicationScenarios::sendUntil);
        StockClient.register("consumeAll", ReplicationScenarios::consumeAll);
    }

    /** Sends one after another without retries: per send its status or error code, its time and its place. */
    private static Object sendTimed(Clients clients, JSONObject args) throws Exception {
        DefaultMQProducer producer = clients.producer("judge_timed");
        producer.setRetryTimesWhenSendFailed(0);
        String topic = args.getString("topic");
        List<Map<String, Object>> seen = new ArrayList<>();
        for (int i = 0; i < args.getIntValue("count"); i++) {
            seen.add(sendOne(producer, topic, i));
        }
        return seen;
    }

    private static Map<String, Object> sendOne(DefaultMQProducer producer, String topic, int number) throws Exception {
        Map<String, Object> one = new LinkedHashMap<>();
        long since = System.nanoTime();
        try {
            SendResult result = producer.send(
                SendScenarios.message(topic, "TagA", "timed-" + number, "timed " + number));
            one.put("status", result.getSendStatus().name());
            one.put("commitLogOffset", MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset());
            one.put("queueOffset", result.getQueueOffset());
        } catch (MQClientException | MQBrokerException failure) {
            MQBrokerException refused = refusal(failure);
            one.put("status", "code " + refused.getResponseCode());
            one.put("remark", refused.getErrorMessage());
        }
        one.put("ms", (System.nanoTime() - since) / 1_000_000);
        return one;
    }

    /** Sends by one producer until a send has this status. Returns the last status, after `seconds` in any case. */
    private static Object sendUntil(Clients clients, JSONObject args) throws Exception {
        DefaultMQProducer producer = clients.producer("judge_until");
        producer.setRetryTimesWhenSendFailed(0);
        String wanted = args.getString("status");
        long until = System.nanoTime() + (long) (1e9 * args.getDoubleValue("seconds"));
        Object status = sendOne(producer, args.getString("topic"), 0).get("status");
        while (!wanted.equals(status) && System.nanoTime() < until) {
            Thread.sleep(50);
            status = sendOne(producer, args.getString("topic"), 0).get("status");
        }
        return status;
    }

    /** The broker's answer behind a failed send; another failure is thrown on. */
    private static MQBrokerException refusal(Exception failure) throws Exception {
        Throwable cause = failure instanceof MQClientException ? failure.getCause() : failure;
        if (cause instanceof MQBrokerException) {
            return (MQBrokerException) cause;
        }
        throw failure;
    }

    /** All messages of a topic as a new group gets them, by queue and offset; what has come after `seconds` at most. */
    private static Object consumeAll(Clients clients, JSONObject args) throws Exception {
        int count = args.getIntValue("count");
        List<MessageExt> received = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.subscribe(args.getString("topic"), "*");
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.registerMessageListener(
            (List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
                received.addAll(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        consumer.start();
        Clients.await(args.getDoubleValue("seconds"), () -> received.size() >= count);
        consumer.shutdown();
        received.sort(Comparator.comparing(MessageExt::getQueueId).thenComparing(MessageExt::getQueueOffset));
        List<Map<String, Object>> described = new ArrayList<>();
        for (MessageExt message : received) {
            Map<String, Object> map = Fetch.describe(message);
            ((Map<?, ?>) map.get("properties")).remove("CONSUME_START_TIME"); // the client's, not stored
            described.add(map);
        }
        return described;
    }

    private ReplicationScenarios() {
    }
}
