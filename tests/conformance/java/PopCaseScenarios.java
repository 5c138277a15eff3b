import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** The cases that RocketMQ's own integration tests of POP have, for one member that pops by raw calls. */
final class PopCaseScenarios {
    private static final int MIB = 1 << 20;
    /** A broker refuses the pop itself or finds messages; its machine may stand still for this long before. */
    private static final int OUTCOME_POLL_MILLIS = 5000;

    static void register() {
        StockClient.register("popBatches", PopCaseScenarios::batches);
        StockClient.register("popCompressed", PopCaseScenarios::compressed);
        StockClient.register("popBig", PopCaseScenarios::big);
        StockClient.register("popForwarded", PopCaseScenarios::forwarded);
        StockClient.register("popResets", PopCaseScenarios::resets);
        StockClient.register("popRefusals", PopCaseScenarios::refusals);
        StockClient.register("popThreshold", PopCaseScenarios::threshold);
        StockClient.register("popChain", PopCaseScenarios::chain);
        StockClient.register("popConditions", PopCaseScenarios::conditions);
        StockClient.register("popWaits", PopCaseScenarios::waits);
    }

    private static PopMember member(Clients clients, JSONObject args) throws Exception {
        return new PopMember(clients, args.getString("topic"), args.getString("group"));
    }

    /** Some messages come back while others are new. One request acknowledges them all. */
    private static Object batches(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        PopMember member = member(clients, args);
        int old = args.getIntValue("old");
        int fresh = args.getIntValue("fresh");
        Map<String, Object> seen = new LinkedHashMap<>();
        PopWork.send(clients, topic, old, "old");
        PopWork.Pops first = new PopWork.Pops();
        first.add(member, PopWork.popAll(member, old, args.getLongValue("shortMillis"), args));
        PopWork.send(clients, topic, fresh, "fresh");
        List<MessageExt> both = PopWork.popAll(member, old + fresh, args.getLongValue("longMillis"), args);
        PopWork.Pops second = new PopWork.Pops();
        second.add(member, both);
        List<String> receipts = new ArrayList<>();
        for (MessageExt message : both) {
            receipts.add(PopMember.receipt(message));
        }
        seen.put("accepted", member.ackAll(receipts));
        PopWork.Pops again = new PopWork.Pops();
        again.add(member, member.await(
            PopWork.MOST, 60_000, "*", PopWork.after(args.getDoubleValue("lookSeconds"))));
        seen.put("first", first.all);
        seen.put("second", second.all);
        seen.put("again", again.all);
        return seen;
    }

    private static Map<String, Object> waiting(PopMember member, long pollMillis) throws Exception {
        long began = System.nanoTime();
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : member.pop(PopMember.ALL_QUEUES, 1, 60_000, pollMillis, "*")) {
            bodies.add(PopWork.body(message));
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("bodies", bodies);
        seen.put("millis", (System.nanoTime() - began) / 1_000_000);
        return seen;
    }

    /** A member waits in vain. Then several do, each at a connection of its own, and as many messages come later. */
    private static Object waits(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("members");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("vain", waiting(member(clients, args), args.getLongValue("vainMillis")));
        ExecutorService pool = Executors.newFixedThreadPool(count);
        try {
            List<Future<Map<String, Object>>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                PopMember member = member(clients, args);
                running.add(pool.submit(() -> waiting(member, args.getLongValue("pollMillis"))));
            }
            Thread.sleep(args.getLongValue("pauseMillis"));
            PopWork.send(clients, topic, count, "late");
            List<Map<String, Object>> found = new ArrayList<>();
            for (Future<Map<String, Object>> one : running) {
                found.add(one.get());
            }
            seen.put("found", found);
        } finally {
            pool.shutdownNow();
        }
        return seen;
    }

    /** What a client that leaves bodies compressed sees of a message at each pop. */
    private static Map<String, Object> stored(MessageExt message) throws Exception {
        Map<String, Object> map = PopMember.describe(message);
        boolean isCompressed = (message.getSysFlag() & MessageSysFlag.COMPRESSED_FLAG) != 0;
        map.put("isCompressed", isCompressed);
        if (isCompressed) {
            byte[] whole = CompressorFactory.getCompressor(
                MessageSysFlag.getCompressionType(message.getSysFlag())).decompress(message.getBody());
            map.put("wholeLength", whole.length);
            map.put("wholeSha256", Fetch.sha256(whole));
        }
        return map;
    }

    /** A body that its producer has compressed is popped, left open, and popped again. */
    private static Object compressed(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        PopMember member = new PopMember(clients, topic, args.getString("group"), clients.api(false));
        byte[] body = new byte[args.getIntValue("bytes")];
        clients.producer("judge_pops").send(new Message(topic, body));
        List<Map<String, Object>> popped = new ArrayList<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (popped.size() < 2 && System.nanoTime() < until) {
            for (MessageExt message : member.await(1, args.getLongValue("invisibleMillis"), "*", until)) {
                popped.add(stored(message));
            }
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("sha256", Fetch.sha256(body));
        seen.put("popped", popped);
        return seen;
    }

    /** Bodies near the limit of a message on each queue are popped twice, together with small ones. */
    private static Object big(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int queues = args.getIntValue("queues");
        TopicOps.create(clients, topic, queues);
        DefaultMQProducer producer = clients.producer("judge_pops");
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setMaxMessageSize(4 * MIB);
        Map<String, String> sent = new LinkedHashMap<>();
        for (int i = 0; i < 2 * queues; i++) {
            byte[] body = new byte[i < queues ? args.getIntValue("bytes") : 100];
            new Random(i).nextBytes(body);
            sent.put("key-" + i, Fetch.sha256(body));
            producer.send(new Message(topic, "TagA", "key-" + i, body));
        }
        PopMember member = member(clients, args);
        List<Map<String, Object>> popped = new ArrayList<>();
        List<Long> answers = new ArrayList<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (popped.size() < 2 * sent.size() && System.nanoTime() < until) {
            List<MessageExt> found = member.await(
                PopWork.MOST, args.getLongValue("invisibleMillis"), "*", Math.min(until, PopWork.after(1)));
            answers.add(found.stream().mapToLong(MessageExt::getStoreSize).sum());
            for (MessageExt message : found) {
                popped.add(PopMember.describe(message));
                if (message.getReconsumeTimes() > 0) {
                    member.ack(PopMember.receipt(message));
                }
            }
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("sent", sent);
        seen.put("popped", popped);
        seen.put("answers", answers);
        return seen;
    }

    /** A popped message is sent on to another topic as it is, and popped there. */
    private static Object forwarded(Clients clients, JSONObject args) throws Exception {
        String other = args.getString("other");
        TopicOps.create(clients, args.getString("topic"), 4);
        TopicOps.create(clients, other, 4);
        PopWork.send(clients, args.getString("topic"), 1, "TagA");
        PopMember from = member(clients, args);
        PopMember to = new PopMember(clients, other, args.getString("group"));
        Map<String, Object> seen = new LinkedHashMap<>();
        MessageExt message = PopWork.popAll(from, 1, 60_000, args).get(0);
        seen.put("first", PopMember.describe(message));
        String receipt = PopMember.receipt(message);
        message.setTopic(other);
        message.setWaitStoreMsgOK(true);
        clients.producer("judge_pops").send(message);
        MessageExt again = PopWork.popAll(to, 1, 60_000, args).get(0);
        seen.put("second", PopMember.describe(again));
        seen.put("differ", !receipt.equals(PopMember.receipt(again)));
        seen.put("acks", List.of(from.ack(receipt), to.ack(PopMember.receipt(again))));
        return seen;
    }

    /**
     * Some messages a pop. After `target` messages an operator sets the group's offset to each of `resets`. If they are
     * acknowledged, that is once the offset says so.
     */
    private static Object resets(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        int count = args.getIntValue("count");
        int target = args.getIntValue("target");
        PopWork.send(clients, topic, count, "TagA");
        PopMember member = member(clients, args);
        JSONArray resets = args.getJSONArray("resets");
        long last = resets.getLongValue(resets.size() - 1);
        List<Long> offsets = new ArrayList<>();
        boolean isReset = false;
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (System.nanoTime() < until) {
            for (MessageExt message : member.pop(0, args.getIntValue("most"), 60_000, 0, "*")) {
                offsets.add(message.getQueueOffset());
                if (args.getBooleanValue("acks")) {
                    member.ack(PopMember.receipt(message));
                }
            }
            if (!isReset && offsets.size() == target) {
                while (args.getBooleanValue("acks") && member.committed(0) < target && System.nanoTime() < until) {
                    Thread.sleep(10);
                }
                for (Object offset : resets) {
                    clients.admin().resetOffsetByQueueId(
                        clients.masters().get(0), args.getString("group"), topic, 0, ((Number) offset).longValue());
                }
                isReset = true;
                Thread.sleep(args.getLongValue("resetPauseMillis"));
            }
            long from = offsets.size() - count + last;
            if (isReset && from >= target && offsets.subList((int) from, offsets.size()).get(0) == last) {
                until = Math.min(until, PopWork.after(1));
            }
            Thread.sleep(args.getLongValue("pauseMillis"));
        }
        return Map.of("offsets", offsets);
    }

    /** The status of a pop, or the code of the refusal. */
    private static Object outcome(PopMember member, int queueId, int most, String type, String expression)
            throws Exception {
        try {
            PopResult result = member.ask(queueId, most, 60_000, OUTCOME_POLL_MILLIS, type, expression);
            int found = result.getPopStatus() == PopStatus.FOUND ? result.getMsgFoundList().size() : 0;
            return result.getPopStatus().name() + " " + found;
        } catch (ExecutionException refused) {
            return ((MQBrokerException) refused.getCause()).getResponseCode();
        }
    }

    /** Pops that a broker refuses, beside those at the limits. */
    private static Object refusals(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        PopWork.send(clients, topic, 70, "TagA");
        PopMember member = member(clients, args);
        int all = PopMember.ALL_QUEUES;
        Map<String, Object> seen = new LinkedHashMap<>();
        PopWork.awaitShown(clients, topic, 70, args);
        seen.put("33 messages", outcome(member, all, 33, ExpressionType.TAG, "*"));
        seen.put("a queue beyond the last", outcome(member, 1, 32, ExpressionType.TAG, "*"));
        seen.put("a condition that is none", outcome(member, all, 32, ExpressionType.SQL92, "n >"));
        seen.put("32 messages", outcome(member, all, 32, ExpressionType.TAG, "*"));
        seen.put("32 more", outcome(member, 0, 32, ExpressionType.TAG, "TagA || TagB"));
        seen.put("the rest", outcome(member, all, 32, null, null));
        seen.put("no more", outcome(member, all, 32, ExpressionType.TAG, "*"));
        return seen;
    }

    /** Pops until one finds nothing, and adds what they found to `open`. Returns their sizes. */
    private static List<Integer> popOpen(PopMember member, JSONObject args, List<MessageExt> open) throws Exception {
        List<Integer> sizes = new ArrayList<>();
        List<MessageExt> found = member.pop(0, args.getIntValue("most"), 60_000, 0, "*");
        while (!found.isEmpty()) {
            open.addAll(found);
            sizes.add(found.size());
            found = member.pop(0, args.getIntValue("most"), 60_000, 0, "*");
        }
        return sizes;
    }

    /** The member leaves messages open until pops find none, acknowledges the first ones of them, and pops again. */
    private static Object threshold(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        TopicOps.create(clients, topic, 1);
        PopWork.send(clients, topic, count, "TagA");
        PopWork.awaitShown(clients, topic, count, args);
        PopMember member = member(clients, args);
        List<MessageExt> open = new ArrayList<>();
        Map<String, Object> seen = new LinkedHashMap<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        open.addAll(member.await(args.getIntValue("most"), 60_000, "*", until));
        seen.put("first", open.size());
        seen.put("then", popOpen(member, args, open));
        for (Object acks : args.getJSONArray("acks")) {
            for (int i = 0; i < (int) acks; i++) {
                member.ack(PopMember.receipt(open.remove(0)));
            }
            seen.put("after " + acks, popOpen(member, args, open));
        }
        seen.put("open", open.size());
        return seen;
    }

    /** A receipt is renewed some times before its time is over, then left; so is that of the message that came back. */
    private static Object chain(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 1);
        PopWork.send(clients, topic, 1, "TagA");
        PopMember member = member(clients, args);
        PopMember other = member(clients, args);
        long millis = args.getLongValue("invisibleMillis");
        List<Object> rounds = new ArrayList<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        for (int round = 0; round < args.getIntValue("rounds"); round++) {
            List<MessageExt> found = member.await(1, millis, "*", until);
            if (found.isEmpty()) {
                break;
            }
            Map<String, Object> seen = PopMember.describe(found.get(0));
            String receipt = PopMember.receipt(found.get(0));
            int early = 0;
            List<Boolean> accepted = new ArrayList<>();
            for (int i = 0; i < args.getIntValue("renewals"); i++) {
                Thread.sleep(millis / 2);
                early += other.pop(PopMember.ALL_QUEUES, 1, 60_000, 0, "*").size();
                seen.put("renewedAt", System.currentTimeMillis());
                receipt = member.change(receipt, millis);
                accepted.add(receipt != null);
            }
            seen.put("early", early);
            seen.put("accepted", accepted);
            if (round == args.getIntValue("rounds") - 1) {
                seen.put("acked", member.ack(receipt));
            }
            rounds.add(seen);
        }
        PopWork.Pops again = new PopWork.Pops();
        again.add(other, other.await(1, 60_000, "*", PopWork.after(args.getDoubleValue("lookSeconds"))));
        return Map.of("rounds", rounds, "again", again.all);
    }

    /** Conditions of SQL92 choose by properties of users and by tags, also among messages that came back. */
    private static Object conditions(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        DefaultMQProducer producer = clients.producer("judge_pops");
        for (int i = 0; i < args.getIntValue("count"); i++) {
            Message message = SendScenarios.message(topic, "Tag" + i % 4, "key-" + i, "body " + i);
            message.putUserProperty("n", String.valueOf(i));
            if (i % 10 == 0) {
                message.putUserProperty("city", "Köln '" + i + "'");
            }
            producer.send(message);
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        int number = 0;
        for (Map.Entry<String, Object> each : args.getJSONObject("conditions").entrySet()) {
            String condition = each.getKey();
            int wanted = (Integer) each.getValue();
            PopMember member = new PopMember(clients, topic, args.getString("group") + number++);
            Map<String, List<Integer>> attempts = new LinkedHashMap<>();
            long until = PopWork.after(args.getDoubleValue("waitSeconds"));
            while (System.nanoTime() < until && !isTwice(attempts, wanted)) {
                // Once all have come, none may come a third time while a slow machine still acknowledges the others.
                long invisibleMillis = attempts.size() < wanted ? args.getLongValue("invisibleMillis") : 60_000;
                PopResult result = member.ask(PopMember.ALL_QUEUES, PopWork.MOST, invisibleMillis,
                    0, ExpressionType.SQL92, condition);
                if (result.getPopStatus() != PopStatus.FOUND) {
                    Thread.sleep(50);
                    continue;
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    attempts.computeIfAbsent(new String(message.getBody()), body -> new ArrayList<>())
                        .add(message.getReconsumeTimes());
                    if (message.getReconsumeTimes() > 0) {
                        member.ack(message.getProperty(MessageConst.PROPERTY_POP_CK));
                    }
                }
            }
            seen.put(condition, attempts);
        }
        return seen;
    }

    private static boolean isTwice(Map<String, List<Integer>> attempts, int wanted) {
        return attempts.size() >= wanted && attempts.values().stream().allMatch(each -> each.size() > 1);
    }

    private PopCaseScenarios() {
    }
}
