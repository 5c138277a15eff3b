import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.NotifyResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.common.message.MessageExt;

/** Members that ask whether a pop would find a message, as proxies do for their clients. */
final class PopNotificationScenarios {
    static void register() {
        StockClient.register("popNotifications", PopNotificationScenarios::notifications);
    }

    private static PopMember member(Clients clients, JSONObject args) throws Exception {
        return new PopMember(clients, args.getString("topic"), args.getString("group"));
    }

    private static Map<String, Object> ask(PopMember member, int queueId) throws Exception {
        NotifyResult result = member.notification(queueId, 0);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("hasMsg", result.isHasMsg());
        seen.put("pollingFull", result.isPollingFull());
        return seen;
    }

    private static Map<String, Object> waiting(PopMember member, long pollMillis) throws Exception {
        long began = System.nanoTime();
        NotifyResult result = member.notification(PopMember.ALL_QUEUES, pollMillis);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("hasMsg", result.isHasMsg());
        seen.put("pollingFull", result.isPollingFull());
        seen.put("millis", (System.nanoTime() - began) / 1_000_000);
        return seen;
    }

    private static int refusal(PopMember member, int queueId) throws Exception {
        try {
            member.notification(queueId, 0);
            return 0;
        } catch (ExecutionException refused) {
            return ((MQBrokerException) refused.getCause()).getResponseCode();
        }
    }

    /**
     * A member waits in vain. Then several do, each at a connection of its own, and as many messages come later. One
     * of them pops all messages, and looks again until they come again.
     */
    private static Object notifications(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("members");
        int all = PopMember.ALL_QUEUES;
        int queues = args.getIntValue("queues");
        TopicOps.create(clients, topic, queues);
        PopMember member = member(clients, args);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("before", ask(member, all));
        seen.put("beyond the last queue", refusal(member, queues));
        seen.put("vain", waiting(member, args.getLongValue("vainMillis")));
        seen.put("told", told(clients, args, count));
        seen.put("still there", ask(member, all));
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : PopWork.popAll(member, count, args.getLongValue("invisibleMillis"), args)) {
            bodies.add(PopWork.body(message));
        }
        seen.put("popped", bodies);
        seen.put("all popped", ask(member, all));
        seen.put("none of a queue", ask(member, queues - 1));
        Clients.await(args.getDoubleValue("waitSeconds"), () -> hasMessage(member));
        seen.put("come again", ask(member, all));
        return seen;
    }

    private static List<Map<String, Object>> told(Clients clients, JSONObject args, int count) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(count);
        try {
            List<Future<Map<String, Object>>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                PopMember one = member(clients, args);
                running.add(pool.submit(() -> waiting(one, args.getLongValue("pollMillis"))));
            }
            Thread.sleep(args.getLongValue("pauseMillis"));
            PopWork.send(clients, args.getString("topic"), count, "late");
            List<Map<String, Object>> told = new ArrayList<>();
            for (Future<Map<String, Object>> each : running) {
                told.add(each.get());
            }
            return told;
        } finally {
            pool.shutdownNow();
        }
    }

    private static boolean hasMessage(PopMember member) {
        try {
            return member.notification(PopMember.ALL_QUEUES, 0).isHasMsg();
        } catch (Exception notYet) {
            return false;
        }
    }

    private PopNotificationScenarios() {
    }
}
