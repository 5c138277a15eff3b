import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** A member of an ordered group that shares it with other clients until it is released. */
final class OrderlyMember {
    private static final Map<String, Clients> HELD = new ConcurrentHashMap<>();
    private static final Map<String, List<List<Long>>> SEEN = new ConcurrentHashMap<>();

    static void register() {
        StockClient.register("holdOrderly", OrderlyMember::hold);
        StockClient.register("countOrderly", (clients, args) -> SEEN.get(args.getString("group")).size());
        StockClient.register("releaseOrderly", OrderlyMember::release);
    }

    /** Starts a member that takes `pauseMillis` for each message. */
    private static Object hold(Clients unused, JSONObject args) throws Exception {
        Clients clients = new Clients(unused.namesrv);
        String group = args.getString("group");
        long pauseMillis = args.getLongValue("pauseMillis");
        List<List<Long>> seen = Collections.synchronizedList(new ArrayList<>());
        HELD.put(group, clients);
        SEEN.put(group, seen);
        DefaultMQPushConsumer consumer = clients.push(group);
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(List.of((long) message.getQueueId(), message.getQueueOffset()));
                try {
                    Thread.sleep(pauseMillis);
                } catch (InterruptedException ended) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return "started";
    }

    /** Ends the member; what it was given, as [queue, offset]. */
    private static Object release(Clients unused, JSONObject args) {
        HELD.remove(args.getString("group")).close();
        return SEEN.remove(args.getString("group"));
    }

    private OrderlyMember() {
    }
}
