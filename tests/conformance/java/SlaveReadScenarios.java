import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** A consumer that is still reading when the master of its broker dies. */
final class SlaveReadScenarios {
    private static final int LITTLE = 4;

    static void register() {
        StockClient.register("consumeSlowly", SlaveReadScenarios::consumeSlowly);
    }

    /** Reads a topic with little in hand and `pauseMs` per message: what came, as queue offsets in order of arrival. */
    private static Object consumeSlowly(Clients clients, JSONObject args) throws Exception {
        int count = args.getIntValue("count");
        long pauseMs = args.getLongValue("pauseMs");
        Map<Integer, List<Long>> received = Collections.synchronizedMap(new TreeMap<>());
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.subscribe(args.getString("topic"), "*");
        consumer.setPullBatchSize(LITTLE);
        consumer.setPullThresholdForQueue(LITTLE);
        consumer.setPersistConsumerOffsetInterval(200);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    List<Long> offsets = received.computeIfAbsent(message.getQueueId(), id -> new ArrayList<>());
                    offsets.add(message.getQueueOffset());
                }
                pause(pauseMs);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        consumer.start();
        Clients.await(args.getDoubleValue("seconds"), () -> distinct(received) >= count);
        consumer.shutdown();
        Map<String, Object> seen = new LinkedHashMap<>();
        received.forEach((queue, offsets) -> seen.put(String.valueOf(queue), offsets));
        return seen;
    }

    private static long distinct(Map<Integer, List<Long>> received) {
        synchronized (received) {
            return received.values().stream().mapToLong(offsets -> offsets.stream().distinct().count()).sum();
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private SlaveReadScenarios() {
    }
}
