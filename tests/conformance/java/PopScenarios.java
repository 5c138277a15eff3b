import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumers that pop by raw calls: acknowledgements of each kind, messages that come back, changed invisible times,
 * late acknowledgements, tags. Each operation lists pops in the order of their answers.
 */
final class PopScenarios {
    private static final int THREADS = 4;

    static void register() {
        StockClient.register("popAndAck", PopScenarios::popAndAck);
        StockClient.register("popOneQueue", PopScenarios::popOneQueue);
        StockClient.register("popRetries", PopScenarios::retries);
        StockClient.register("popChanges", PopScenarios::changes);
        StockClient.register("popLateAcks", PopScenarios::lateAcks);
        StockClient.register("popTags", PopScenarios::tags);
    }

    /** PopWork.Pops and acknowledges at once, in turn: each message alone, or all of a pop in one request. */
    private static Object member(
            PopMember member, JSONObject args, PopWork.Pops pops, AtomicInteger refused, int wanted) throws Exception {
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        for (int turn = 0; pops.different() < wanted && System.nanoTime() < until; turn++) {
            List<MessageExt> found = member.await(
                PopWork.MOST, args.getLongValue("invisibleMillis"), "*", Math.min(until, PopWork.after(1)));
            List<String> receipts = new ArrayList<>();
            for (MessageExt message : found) {
                receipts.add(PopMember.receipt(message));
            }
            if (turn % 2 == 0 && !receipts.isEmpty()) {
                refused.addAndGet(member.ackAll(receipts) ? 0 : receipts.size());
            } else {
                for (String receipt : receipts) {
                    refused.addAndGet(member.ack(receipt) ? 0 : 1);
                }
            }
            pops.add(member, found);
        }
        return null;
    }

    /** Some members of a group drain some queues, then look on for what comes back. */
    private static Object popAndAck(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        int count = args.getIntValue("count");
        seen.put("sent", PopWork.send(clients, topic, count, "TagA", "TagB"));
        PopWork.Pops pops = new PopWork.Pops();
        AtomicInteger refused = new AtomicInteger();
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<Object>> running = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                PopMember member = new PopMember(clients, topic, args.getString("group"));
                running.add(pool.submit(() -> member(member, args, pops, refused, count)));
            }
            for (Future<Object> one : running) {
                one.get();
            }
        } finally {
            pool.shutdownNow();
        }
        seen.put("popped", new ArrayList<>(pops.all));
        seen.put("refused", refused.get());
        PopWork.Pops again = new PopWork.Pops();
        PopMember member = new PopMember(clients, topic, args.getString("group"));
        again.add(member, member.await(PopWork.MOST, 60_000, "*", PopWork.after(args.getDoubleValue("lookSeconds"))));
        seen.put("again", again.all);
        return seen;
    }

    /** One queue by its number, one message a pop; the other queues keep theirs. */
    private static Object popOneQueue(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("sent", PopWork.send(clients, topic, args.getIntValue("count"), "TagA"));
        PopMember member = new PopMember(clients, topic, args.getString("group"));
        PopWork.Pops pops = new PopWork.Pops();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        int wanted = args.getIntValue("count") / args.getIntValue("queues");
        for (boolean isEmpty = false; System.nanoTime() < until && !(isEmpty && pops.all.size() >= wanted); ) {
            List<MessageExt> found = member.pop(args.getIntValue("queue"), 1, 60_000, 0, "*");
            isEmpty = found.isEmpty();
            pops.add(member, found);
            for (MessageExt message : found) {
                member.ack(PopMember.receipt(message));
            }
        }
        seen.put("popped", pops.all);
        return seen;
    }

    /** Nothing is acknowledged before the last attempt; each attempt of a message is listed. */
    private static Object retries(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        int count = args.getIntValue("count");
        int attempts = args.getIntValue("attempts");
        seen.put("sent", PopWork.send(clients, topic, count, "TagA", "TagB"));
        PopMember member = new PopMember(clients, topic, args.getString("group"));
        PopWork.Pops pops = new PopWork.Pops();
        int finished = 0;
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (finished < count && System.nanoTime() < until) {
            List<MessageExt> found = member.await(PopWork.MOST, args.getLongValue("invisibleMillis"), "*", until);
            pops.add(member, found);
            for (MessageExt message : found) {
                if (pops.times(PopWork.body(message)) == attempts && member.ack(PopMember.receipt(message))) {
                    finished++;
                }
            }
        }
        pops.add(member, member.await(PopWork.MOST, 60_000, "*", PopWork.after(args.getDoubleValue("lookSeconds"))));
        seen.put("popped", pops.all);
        return seen;
    }

    /**
     * Five messages are popped. Four of them get another invisible time: `longer` and `shorter` come back by it,
     * `old` is acknowledged by the receipt that the change has replaced, `new` by the one that it gave.
     */
    private static Object changes(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        Map<String, Object> seen = new LinkedHashMap<>();
        String[] names = {"longer", "shorter", "same", "old", "new"};
        seen.put("sent", PopWork.send(clients, topic, names.length, names));
        PopMember member = new PopMember(clients, topic, args.getString("group"));
        PopWork.Pops pops = new PopWork.Pops();
        long invisible = args.getLongValue("invisibleMillis");
        List<MessageExt> found = PopWork.popAll(member, names.length, invisible, args);
        pops.add(member, found);
        Map<String, Object> changed = new LinkedHashMap<>();
        Map<String, Object> acks = new LinkedHashMap<>();
        for (MessageExt message : found) {
            String name = message.getTags();
            if (name.equals("same")) {
                continue;
            }
            Map<String, Object> change = new LinkedHashMap<>();
            change.put("at", System.currentTimeMillis());
            String old = PopMember.receipt(message);
            long millis = args.getLongValue(name.equals("longer") ? "longerMillis" : "shorterMillis");
            String fresh = member.change(old, millis);
            change.put("millis", millis);
            change.put("accepted", fresh != null);
            changed.put(name, change);
            if (name.equals("old") || name.equals("new")) {
                acks.put(name, member.ack(name.equals("old") ? old : fresh));
            }
        }
        seen.put("changed", changed);
        seen.put("acks", acks);
        PopWork.watch(member, pops, args, names.length + names.length - 1);
        seen.put("popped", pops.all);
        return seen;
    }

    /**
     * `soon` is acknowledged after its time and before anybody has popped it again; `late` by the receipt of its first
     * pop when it was popped again. The second pop of `late` is left open, so it comes a third time.
     */
    private static Object lateAcks(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        Map<String, Object> seen = new LinkedHashMap<>();
        long invisible = args.getLongValue("invisibleMillis");
        PopMember member = new PopMember(clients, topic, args.getString("group"));
        PopWork.Pops pops = new PopWork.Pops();
        seen.put("sent", PopWork.send(clients, topic, 1, "soon"));
        List<MessageExt> soon = PopWork.popAll(member, 1, invisible, args);
        pops.add(member, soon);
        Thread.sleep(invisible + args.getLongValue("lateMillis"));
        seen.put("soonAcked", member.ack(PopMember.receipt(soon.get(0))));
        long lookUntil = PopWork.after(args.getDoubleValue("lookSeconds"));
        List<MessageExt> back = member.await(PopWork.MOST, 60_000, "*", lookUntil);
        pops.add(member, back);
        PopWork.send(clients, topic, 1, "late");
        List<MessageExt> late = PopWork.popAll(member, 1, invisible, args);
        pops.add(member, late);
        pops.add(member, member.await(PopWork.MOST, invisible, "*", PopWork.after(args.getDoubleValue("waitSeconds"))));
        seen.put("lateAcked", member.ack(PopMember.receipt(late.get(0))));
        pops.add(member, member.await(PopWork.MOST, 60_000, "*", PopWork.after(args.getDoubleValue("waitSeconds"))));
        seen.put("popped", pops.all);
        return seen;
    }

    /** One group pops by an expression of tags, leaving its messages open once, another pops everything. */
    private static Object tags(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("sent", PopWork.send(clients, topic, args.getIntValue("count"), "TagA", "TagB", "TagC", "TagD"));
        for (String expression : new String[] {"TagA || TagC", "*"}) {
            PopMember member = new PopMember(clients, topic, args.getString("group") + (char) ('0' + seen.size()));
            PopWork.Pops pops = new PopWork.Pops();
            Set<String> open = new TreeSet<>();
            long until = PopWork.after(args.getDoubleValue("waitSeconds"));
            int wanted = args.getJSONObject("wanted").getIntValue(expression);
            while (pops.all.size() < wanted && System.nanoTime() < until) {
                List<MessageExt> found = member.await(
                    PopWork.MOST, args.getLongValue("invisibleMillis"), expression, Math.min(until, PopWork.after(1)));
                for (MessageExt message : found) {
                    boolean isFirst = open.add(message.getProperty(MessageConst.PROPERTY_KEYS));
                    if (!isFirst || expression.equals("*")) {
                        member.ack(PopMember.receipt(message));
                    }
                }
                pops.add(member, found);
            }
            long lookUntil = PopWork.after(args.getDoubleValue("lookSeconds"));
            pops.add(member, member.await(PopWork.MOST, 60_000, expression, lookUntil));
            seen.put(expression, pops.all);
        }
        return seen;
    }

    private PopScenarios() {
    }
}
