import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Pops in order: a queue with an open message gives none behind it, and its messages come again from the queue. */
final class PopOrderScenarios {
    static void register() {
        StockClient.register("popOrdered", PopOrderScenarios::ordered);
        StockClient.register("popOrderedOpen", PopOrderScenarios::open);
        StockClient.register("popOrderedChanged", PopOrderScenarios::changed);
        StockClient.register("popOrderedMiddle", PopOrderScenarios::middle);
        StockClient.register("popOrderedAttempts", PopOrderScenarios::attempts);
        StockClient.register("popOrderedBatches", PopOrderScenarios::batches);
        StockClient.register("popOrderedResetOpen", PopOrderScenarios::resetOpen);
        StockClient.register("popOrderedSkip", PopOrderScenarios::skip);
        StockClient.register("popOrderedResets", PopOrderScenarios::resets);
    }

    /** A topic with messages that pops find, and a member that pops them. */
    private static PopMember staged(Clients clients, JSONObject args, int queues) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        TopicOps.create(clients, topic, queues);
        PopWork.send(clients, topic, count, "TagA");
        PopWork.awaitShown(clients, topic, count, args);
        return new PopMember(clients, topic, args.getString("group"));
    }

    private static List<MessageExt> pop(PopMember member, JSONObject args, String attemptId) throws Exception {
        return member.popInOrder(args.getIntValue("most"), args.getLongValue("invisibleMillis"),
            args.getLongValue("pollMillis"), attemptId);
    }

    /** Pops with a wait, again and again until one finds messages, all of whom are added to `pops`. */
    private static List<MessageExt> await(
            PopMember member, JSONObject args, String attemptId, PopWork.Pops pops, long until) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        while (found.isEmpty() && System.nanoTime() < until) {
            found = pop(member, args, attemptId);
        }
        pops.add(member, found);
        return found;
    }

    private static List<Long> offsets(List<MessageExt> messages) {
        List<Long> found = new ArrayList<>();
        messages.forEach(message -> found.add(message.getQueueOffset()));
        return found;
    }

    private static boolean ackAll(PopMember member, List<MessageExt> messages) throws Exception {
        boolean isDone = true;
        for (MessageExt message : messages) {
            isDone &= member.ack(PopMember.receipt(message));
        }
        return isDone;
    }

    /** One message a pop, each acknowledged some time later by another connection. */
    private static Object ordered(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopMember other = new PopMember(clients, member.topic, member.group);
        int count = args.getIntValue("count");
        PopWork.Pops pops = new PopWork.Pops();
        Map<String, Long> ackedAt = new ConcurrentHashMap<>();
        ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
        try {
            long until = PopWork.after(args.getDoubleValue("waitSeconds"));
            while (pops.all.size() < count && System.nanoTime() < until) {
                for (MessageExt message : await(member, args, null, pops, until)) {
                    later.schedule(() -> {
                        ackedAt.put(PopWork.body(message), System.currentTimeMillis());
                        return other.ack(PopMember.receipt(message));
                    }, args.getLongValue("laterMillis"), TimeUnit.MILLISECONDS);
                }
            }
        } finally {
            later.shutdown();
            later.awaitTermination(30, TimeUnit.SECONDS);
        }
        int again = member.popInOrder(args.getIntValue("most"), 60_000, 0, null).size();
        return Map.of("popped", pops.all, "ackedAt", ackedAt, "again", again);
    }

    /** Nothing is acknowledged. */
    private static Object open(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (pops.all.size() < args.getIntValue("wanted") && System.nanoTime() < until) {
            await(member, args, null, pops, until);
        }
        return pops.all;
    }

    /** A message gets another invisible time, comes again, and is acknowledged. */
    private static Object changed(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        Map<String, Object> seen = new LinkedHashMap<>();
        List<MessageExt> first = await(member, args, null, pops, until);
        seen.put("changedAt", System.currentTimeMillis());
        seen.put("accepted", member.change(PopMember.receipt(first.get(0)), args.getLongValue("changedMillis")) != null);
        List<MessageExt> second = await(member, args, null, pops, until);
        seen.put("acked", ackAll(member, second));
        seen.put("again", member.popInOrder(1, 60_000, 500, null).size());
        seen.put("popped", pops.all);
        return seen;
    }

    /** Of three messages the first and the last are acknowledged, and the one between them gets a shorter time. */
    private static Object middle(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        List<MessageExt> first = await(member, args, null, pops, until);
        for (MessageExt message : first) {
            String receipt = PopMember.receipt(message);
            if (message.getQueueOffset() == 1) {
                member.change(receipt, args.getLongValue("changedMillis"));
            } else {
                member.ack(receipt);
            }
        }
        while (pops.all.size() < args.getIntValue("wanted") && System.nanoTime() < until) {
            ackAll(member, await(member, args, null, pops, until));
        }
        return pops.all;
    }

    /** One message is popped by attempts with ids, in turn; an attempt that has it gets it again at once. */
    private static Object attempts(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        for (Object attemptId : args.getJSONArray("attempts")) {
            await(member, args, (String) attemptId, pops, until);
        }
        return pops.all;
    }

    /** Messages of several queues come again beside new ones. One request acknowledges them all. */
    private static Object batches(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, args.getIntValue("queues"));
        int old = args.getIntValue("count");
        int fresh = args.getIntValue("fresh");
        PopWork.Pops first = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (first.all.size() < old && System.nanoTime() < until) {
            await(member, args, null, first, until);
        }
        PopWork.send(clients, member.topic, fresh, "fresh");
        args.put("invisibleMillis", args.get("longMillis"));
        PopWork.Pops second = new PopWork.Pops();
        List<String> receipts = new ArrayList<>();
        while (second.different() < old + fresh && System.nanoTime() < until) {
            for (MessageExt message : await(member, args, null, second, until)) {
                receipts.add(PopMember.receipt(message));
            }
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("accepted", member.ackAll(receipts));
        PopWork.Pops again = new PopWork.Pops();
        await(member, args, null, again, PopWork.after(args.getDoubleValue("lookSeconds")));
        seen.put("first", first.all);
        seen.put("second", second.all);
        seen.put("again", again.all);
        return seen;
    }

    private static void reset(Clients clients, PopMember member, long offset) throws Exception {
        clients.admin().resetOffsetByQueueId(clients.masters().get(0), member.group, member.topic, 0, offset);
    }

    /** An operator sets the offset back behind open messages, whose receipts have no effect then. */
    private static Object resetOpen(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        Map<String, Object> seen = new LinkedHashMap<>();
        List<MessageExt> first = await(member, args, null, pops, until);
        seen.put("first", offsets(first));
        reset(clients, member, args.getLongValue("target"));
        seen.put("reset", member.committed(0));
        List<MessageExt> second = await(member, args, null, pops, until);
        seen.put("second", offsets(second));
        seen.put("old acks", ackAll(member, first));
        seen.put("open then", offsets(member.popInOrder(32, 60_000, 0, null)));
        seen.put("offset then", member.committed(0));
        seen.put("new acks", ackAll(member, second));
        seen.putAll(end(clients, member, args, until));
        return seen;
    }

    /** The offset once all is acknowledged, and the pop of a message that comes then. */
    private static Map<String, Object> end(Clients clients, PopMember member, JSONObject args, long until)
            throws Exception {
        long count = args.getLongValue("count");
        while (member.committed(0) < count && System.nanoTime() < until) {
            Thread.sleep(10);
        }
        long committed = member.committed(0);
        PopWork.send(clients, member.topic, 1, "TagA");
        return Map.of("offset", committed, "next", offsets(await(member, args, null, new PopWork.Pops(), until)));
    }

    /** An operator sets the offset before the first pop. */
    private static Object skip(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        Map<String, Object> seen = new LinkedHashMap<>();
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(member.group);
        clients.admin().createAndUpdateSubscriptionGroupConfig(clients.masters().get(0), group);
        reset(clients, member, args.getLongValue("target"));
        List<MessageExt> first = await(member, args, null, new PopWork.Pops(), until);
        seen.put("first", offsets(first));
        seen.put("open then", offsets(member.popInOrder(32, 60_000, 0, null)));
        seen.put("acks", ackAll(member, first));
        seen.putAll(end(clients, member, args, until));
        return seen;
    }

    /** Pops and acknowledges one by one. After `target` messages an operator sets the offset to each of `resets`. */
    private static Object resets(Clients clients, JSONObject args) throws Exception {
        PopMember member = staged(clients, args, 1);
        JSONArray resets = args.getJSONArray("resets");
        PopWork.Pops pops = new PopWork.Pops();
        List<Long> offsets = new ArrayList<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (offsets.size() < args.getIntValue("wanted") && System.nanoTime() < until) {
            List<MessageExt> found = await(member, args, null, pops, until);
            offsets.addAll(offsets(found));
            ackAll(member, found);
            if (offsets.size() == args.getIntValue("target")) {
                for (Object offset : resets) {
                    reset(clients, member, ((Number) offset).longValue());
                }
            }
        }
        offsets.addAll(offsets(member.popInOrder(1, 60_000, 500, null)));
        return offsets;
    }

    private PopOrderScenarios() {
    }
}
