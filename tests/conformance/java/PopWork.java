import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** What scenarios of POP share: messages to pop, lists of pops, waits. */
final class PopWork {
    /** The most messages that a broker gives in one pop. */
    static final int MOST = 32;

    static long after(double seconds) {
        return System.nanoTime() + (long) (seconds * 1e9);
    }

    /** All pops of an operation, with the time of each answer. */
    static final class Pops {
        final List<Map<String, Object>> all = Collections.synchronizedList(new ArrayList<>());
        private final Set<String> bodies = ConcurrentHashMap.newKeySet();

        void add(PopMember member, List<MessageExt> messages) throws Exception {
            long now = System.currentTimeMillis();
            for (MessageExt message : messages) {
                Map<String, Object> seen = PopMember.describe(message);
                seen.put("seenAt", now);
                all.add(seen);
                bodies.add((String) seen.get("body"));
            }
        }

        int different() {
            return bodies.size();
        }

        long times(String body) {
            synchronized (all) {
                return all.stream().filter(seen -> body.equals(seen.get("body"))).count();
            }
        }
    }

    static String body(MessageExt message) {
        return new String(message.getBody());
    }

    /** Sends `count` messages over all queues, with tags in turn. */
    static List<Map<String, Object>> send(Clients clients, String topic, int count, String... tags)
            throws Exception {
        DefaultMQProducer producer = clients.producer("judge_pops");
        List<Map<String, Object>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String tag = tags[i % tags.length];
            Map<String, Object> result = SendScenarios.describe(
                producer.send(SendScenarios.message(topic, tag, "key-" + i, tag + " " + i)));
            result.put("body", tag + " " + i);
            sent.add(result);
        }
        return sent;
    }

    /** Waits until the queues of a topic show `count` messages, which is a moment after their sends were answered. */
    static void awaitShown(Clients clients, String topic, long count, JSONObject args) throws Exception {
        Clients.await(args.getDoubleValue("waitSeconds"), () -> {
            try {
                return clients.admin().examineTopicStats(topic).getOffsetTable().values().stream()
                    .mapToLong(offset -> offset.getMaxOffset()).sum() >= count;
            } catch (Exception notYet) {
                return false;
            }
        });
    }

    /** Pops until there are `count` messages; a queue shows a message a moment after its send was answered. */
    static List<MessageExt> popAll(PopMember member, int count, long invisible, JSONObject args)
            throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long until = after(args.getDoubleValue("waitSeconds"));
        while (found.size() < count && System.nanoTime() < until) {
            found.addAll(member.await(MOST, invisible, "*", until));
        }
        return found;
    }

    /** Pops what comes back and acknowledges it, until there were `wanted` pops, and looks on for more. */
    static void watch(PopMember member, Pops pops, JSONObject args, int wanted) throws Exception {
        long until = after(args.getDoubleValue("waitSeconds"));
        while (System.nanoTime() < until) {
            List<MessageExt> found = member.await(MOST, 60_000, "*", until);
            pops.add(member, found);
            for (MessageExt message : found) {
                member.ack(PopMember.receipt(message));
            }
            if (pops.all.size() >= wanted) {
                until = Math.min(until, after(args.getDoubleValue("lookSeconds")));
            }
        }
    }

    private PopWork() {
    }
}
