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
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What wakes members that wait: for messages, for the news of them, and for those with a time. */
final class PopWaitScenarios {
    private static final int ALL = PopMember.ALL_QUEUES;

    static void register() {
        StockClient.register("popNotified", PopWaitScenarios::notified);
        StockClient.register("popToldEach", PopWaitScenarios::toldEach);
        StockClient.register("popNotifiedInOrder", PopWaitScenarios::notifiedInOrder);
        StockClient.register("popRecalled", PopWaitScenarios::recalled);
    }

    private static PopMember member(Clients clients, JSONObject args) throws Exception {
        return new PopMember(clients, args.getString("topic"), args.getString("group"));
    }

    private interface Question {
        NotifyResult ask() throws Exception;
    }

    private static Map<String, Object> timed(Question question) throws Exception {
        long began = System.nanoTime();
        NotifyResult result = question.ask();
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("has", result.isHasMsg());
        seen.put("isFull", result.isPollingFull());
        seen.put("millis", (System.nanoTime() - began) / 1_000_000);
        return seen;
    }

    /** Members ask before there is a message, while it comes, when it is there, and when it was popped. */
    private static Object notified(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        long vainMillis = args.getLongValue("vainMillis");
        long pollMillis = args.getLongValue("pollMillis");
        TopicOps.create(clients, topic, 2);
        PopMember member = member(clients, args);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("vain", timed(() -> member.notification(ALL, vainMillis)));
        ExecutorService pool = Executors.newFixedThreadPool(2);
        try {
            List<Future<Map<String, Object>>> running = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                PopMember other = member(clients, args);
                running.add(pool.submit(() -> timed(() -> other.notification(ALL, pollMillis))));
            }
            Thread.sleep(args.getLongValue("pauseMillis"));
            int queueId = (int) PopWork.send(clients, topic, 1, "TagA").get(0).get("queueId");
            Clients.await(pollMillis / 1000.0, () -> running.stream().anyMatch(Future::isDone));
            seen.put("its queue", timed(() -> member.notification(queueId, 0)));
            seen.put("another queue", timed(() -> member.notification(1 - queueId, 0)));
            seen.put("there", timed(() -> member.notification(ALL, pollMillis)));
            for (MessageExt message : member.pop(ALL, 1, 60_000, 0, "*")) {
                seen.put("popped", PopWork.body(message));
                seen.put("acked", member.ack(PopMember.receipt(message)));
            }
            seen.put("popped already", timed(() -> member.notification(ALL, 0)));
            List<Map<String, Object>> woken = new ArrayList<>();
            for (Future<Map<String, Object>> one : running) {
                woken.add(one.get());
            }
            seen.put("waiting", woken);
        } finally {
            pool.shutdownNow();
        }
        return seen;
    }

    /** As many messages come as members wait. They are popped, left open, and come again. */
    private static Object toldEach(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("members");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        PopMember member = member(clients, args);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("beyond the last queue", refusal(member, args.getIntValue("queues")));
        ExecutorService pool = Executors.newFixedThreadPool(count);
        try {
            List<Future<Map<String, Object>>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                PopMember other = member(clients, args);
                running.add(pool.submit(() -> timed(() -> other.notification(ALL, args.getLongValue("pollMillis")))));
            }
            Thread.sleep(args.getLongValue("pauseMillis"));
            PopWork.send(clients, topic, count, "TagA");
            List<Map<String, Object>> told = new ArrayList<>();
            for (Future<Map<String, Object>> one : running) {
                told.add(one.get());
            }
            seen.put("told", told);
        } finally {
            pool.shutdownNow();
        }
        seen.put("popped", PopWork.popAll(member, count, args.getLongValue("invisibleMillis"), args).size());
        seen.put("all popped", timed(() -> member.notification(ALL, 0)));
        Clients.await(args.getDoubleValue("waitSeconds"), () -> hasMessage(member));
        seen.put("come again", timed(() -> member.notification(ALL, 0)));
        return seen;
    }

    private static boolean hasMessage(PopMember member) {
        try {
            return member.notification(ALL, 0).isHasMsg();
        } catch (Exception notYet) {
            return false;
        }
    }

    private static int refusal(PopMember member, int queueId) throws Exception {
        try {
            member.notification(queueId, 0);
            return 0;
        } catch (ExecutionException refused) {
            return ((MQBrokerException) refused.getCause()).getResponseCode();
        }
    }

    /** An attempt that has the message of a queue hears of it, and another one does not. */
    private static Object notifiedInOrder(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        long pollMillis = args.getLongValue("pollMillis");
        TopicOps.create(clients, topic, 2);
        PopMember member = member(clients, args);
        Map<String, Object> seen = new LinkedHashMap<>();
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            PopMember other = member(clients, args);
            Future<Map<String, Object>> waiting =
                pool.submit(() -> timed(() -> other.notification(ALL, pollMillis, true, "one")));
            Thread.sleep(args.getLongValue("pauseMillis"));
            PopWork.send(clients, topic, 1, "TagA");
            seen.put("waiting", waiting.get());
        } finally {
            pool.shutdownNow();
        }
        List<MessageExt> found = member.popInOrder(1, 60_000, pollMillis, "one");
        seen.put("popped", found.size());
        seen.put("the same attempt", timed(() -> member.notification(ALL, 0, true, "one")));
        seen.put("another attempt", timed(() -> member.notification(ALL, args.getLongValue("vainMillis"), true, "two")));
        for (MessageExt message : found) {
            seen.put("acked", member.ack(PopMember.receipt(message)));
        }
        seen.put("acknowledged", timed(() -> member.notification(ALL, 0, true, "one")));
        return seen;
    }

    /** Of two messages with a time one is recalled. A member waits until the time is over, and longer. */
    private static Object recalled(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 2);
        DefaultMQProducer producer = clients.producer("judge_pops");
        Map<String, Object> seen = new LinkedHashMap<>();
        long deliverAt = System.currentTimeMillis() + args.getLongValue("afterMillis");
        seen.put("deliverAt", deliverAt);
        for (String body : new String[] {"recalled", "kept"}) {
            Message message = new Message(topic, body.getBytes());
            message.setDeliverTimeMs(deliverAt);
            SendResult result = producer.send(message);
            if (body.equals("recalled")) {
                seen.put("isRecalled", producer.recallMessage(topic, result.getRecallHandle()) != null);
            }
        }
        PopMember member = member(clients, args);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (System.nanoTime() < until) {
            List<MessageExt> found = member.pop(ALL, PopWork.MOST, 60_000, 2000, "*");
            pops.add(member, found);
            for (MessageExt message : found) {
                member.ack(PopMember.receipt(message));
                until = Math.min(until, PopWork.after(args.getDoubleValue("lookSeconds")));
            }
        }
        seen.put("popped", pops.all);
        return seen;
    }

    private PopWaitScenarios() {
    }
}
