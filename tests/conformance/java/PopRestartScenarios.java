import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.common.message.MessageExt;

/** An orderly group, whose members pop one queue. A restart of the broker comes between its two operations. */
final class PopRestartScenarios {
    private static final long HOUR_MILLIS = 3_600_000;

    static void register() {
        StockClient.register("popInOrder", PopRestartScenarios::before);
        StockClient.register("popInOrderAgain", PopRestartScenarios::after);
    }

    private static PopMember member(Clients clients, JSONObject args) throws Exception {
        return new PopMember(clients, args.getString("topic"), args.getString("group"));
    }

    /** Offset and number of earlier pops of each message. */
    private static List<List<Long>> seen(List<MessageExt> messages) {
        List<List<Long>> all = new ArrayList<>();
        for (MessageExt message : messages) {
            all.add(List.of(message.getQueueOffset(), (long) message.getReconsumeTimes()));
        }
        return all;
    }

    private static List<String> receipts(List<MessageExt> messages) {
        List<String> all = new ArrayList<>();
        for (MessageExt message : messages) {
            all.add(PopMember.receipt(message));
        }
        return all;
    }

    /** The consumer offset, once it is `wanted` or the time is over. */
    private static long committed(PopMember member, long wanted, JSONObject args) throws Exception {
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        long found = member.committed(0);
        while (found != wanted && System.nanoTime() < until) {
            Thread.sleep(20);
            found = member.committed(0);
        }
        return found;
    }

    private static Object before(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        PopWork.send(clients, topic, 10, "TagA");
        PopMember member = member(clients, args);
        PopMember other = member(clients, args);
        Map<String, Object> found = new LinkedHashMap<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        List<MessageExt> batch = member.popInOrder(3, HOUR_MILLIS, 0, "a1");
        while (batch.size() < 3 && System.nanoTime() < until) {
            Thread.sleep(100);
            batch = member.popInOrder(3, HOUR_MILLIS, 0, "a1");
        }
        found.put("first", seen(batch));
        found.put("blocked", seen(other.popInOrder(3, HOUR_MILLIS, 0, "a2")));
        List<MessageExt> again = member.popInOrder(3, HOUR_MILLIS, 0, "a1");
        found.put("again", seen(again));
        List<String> receipts = receipts(again);
        found.put("second", member.ack(receipts.get(1)));
        found.put("old", member.ack(receipts(batch).get(0)));
        found.put("stays", committed(member, 0, args));
        found.put("ack", member.ack(receipts.get(0)));
        found.put("moved", committed(member, 2, args));
        found.put("changed", member.change(receipts.get(2), args.getLongValue("shortMillis")) != null);
        long began = System.nanoTime();
        List<MessageExt> third = other.popInOrder(3, HOUR_MILLIS, 15_000, "a3");
        found.put("waited", (System.nanoTime() - began) / 1_000_000);
        found.put("third", seen(third));
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            Future<List<MessageExt>> polling = pool.submit(() -> member.popInOrder(3, HOUR_MILLIS, 15_000, "last"));
            for (String receipt : receipts(third)) {
                other.ack(receipt);
            }
            List<MessageExt> last = polling.get();
            found.put("last", seen(last));
            found.put("middle", member.ack(receipts(last).get(1)));
            found.put("receipts", receipts(last));
        } finally {
            pool.shutdownNow();
        }
        found.put("committed", committed(member, 5, args));
        return found;
    }

    private static Object after(Clients clients, JSONObject args) throws Exception {
        PopMember member = member(clients, args);
        JSONArray receipts = args.getJSONArray("receipts");
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("blocked", seen(member.popInOrder(3, HOUR_MILLIS, 0, "a9")));
        found.put("ack", member.ack(receipts.getString(0)));
        found.put("moved", committed(member, 7, args));
        List<MessageExt> again = member.popInOrder(1, HOUR_MILLIS, 0, "last");
        found.put("again", seen(again));
        found.put("changed", member.change(receipts(again).get(0), args.getLongValue("shortMillis")) != null);
        found.put("rest", seen(member.popInOrder(4, HOUR_MILLIS, 15_000, "a9")));
        return found;
    }

    private PopRestartScenarios() {
    }
}
