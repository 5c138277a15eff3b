import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Messages found by key, by unique id and by offset id. */
final class QueryScenarios {
    static void register() {
        StockClient.register("query", QueryScenarios::query);
        StockClient.register("queryKeys", QueryScenarios::queryKeys);
    }

    private interface Query {
        QueryResult ask() throws Exception;
    }

    static List<String> byKey(Clients clients, String topic, String key, int max, long begin, long end)
        throws Exception {
        return bodies(() -> clients.admin().queryMessage(topic, key, max, begin, end));
    }

    private static List<String> byUniqueKey(Clients clients, String topic, String key, long begin, long end)
        throws Exception {
        return bodies(() -> clients.admin().queryMessageByUniqKey(null, topic, key, 32, begin, end));
    }

    private static List<String> bodies(Query query) throws Exception {
        List<String> bodies = new ArrayList<>();
        try {
            for (MessageExt message : query.ask().getMessageList()) {
                bodies.add(new String(message.getBody()));
            }
        } catch (MQClientException none) {
            bodies.add("code " + none.getResponseCode());
        }
        bodies.sort(null);
        return bodies;
    }

    private static Object query(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        TopicOps.create(clients, topic, 2);
        DefaultMQProducer producer = clients.producer("judge_query");
        DefaultMQAdminExt admin = clients.admin();
        long begin = System.currentTimeMillis() - 1000;
        SendResult single = producer.send(SendScenarios.message(topic, "TagA", "only", "only"));
        for (int i = 0; i < 5; i++) {
            producer.send(SendScenarios.message(topic, "TagA", "shared own-" + i, "shared " + i));
        }
        SendResult batch = producer.send(List.of(
            SendScenarios.message(topic, "TagA", "batch", "batch 0"),
            SendScenarios.message(topic, "TagA", "batch", "batch 1")));
        producer.send(SendScenarios.message(topic, null, "Aa", "key Aa"));
        producer.send(SendScenarios.message(topic, null, "BB", "key BB"));
        long end = System.currentTimeMillis() + 60_000;
        Map<String, Object> seen = new LinkedHashMap<>();
        boolean indexed = Clients.await(60, () -> {
            try {
                return byKey(clients, topic, "BB", 32, begin, end).equals(List.of("key BB"));
            } catch (Exception notYet) {
                return false;
            }
        });
        seen.put("indexed", indexed);
        seen.put("only", byKey(clients, topic, "only", 32, begin, end));
        seen.put("shared", byKey(clients, topic, "shared", 32, begin, end));
        seen.put("sharedTwo", byKey(clients, topic, "shared", 2, begin, end).size());
        seen.put("own", byKey(clients, topic, "own-3", 32, begin, end));
        seen.put("Aa", byKey(clients, topic, "Aa", 32, begin, end));
        seen.put("BB", byKey(clients, topic, "BB", 32, begin, end));
        seen.put("missing", byKey(clients, topic, "missing", 32, begin, end));
        seen.put("tooEarly", byKey(clients, topic, "only", 32, 0, begin - 600_000));
        List<String> ofBatch = new ArrayList<>();
        for (String id : batch.getMsgId().split(",")) {
            ofBatch.add(String.join(",", byUniqueKey(clients, topic, id, begin, end)));
        }
        seen.put("batchByUniqueIds", ofBatch);
        seen.put("byUniqueId", Fetch.describe(admin.viewMessage(topic, single.getMsgId())));
        seen.put("byOffsetId", Fetch.describe(admin.viewMessage(topic, single.getOffsetMsgId())));
        try {
            String wrong = single.getOffsetMsgId().substring(0, 16) + "00000000FFFFFFFF";
            seen.put("wrongOffsetId", Fetch.describe(admin.viewMessage(topic, wrong)));
        } catch (Exception refused) {
            seen.put("wrongOffsetId", refused.getClass().getSimpleName());
        }
        return seen;
    }

    /** Which of the given keys find a message: key to the bodies found. */
    private static Object queryKeys(Clients clients, JSONObject args) throws Exception {
        Map<String, List<String>> found = new LinkedHashMap<>();
        for (Object key : args.getJSONArray("keys")) {
            found.put((String) key,
                byKey(clients, args.getString("topic"), (String) key, 32, 0, System.currentTimeMillis() + 60_000));
        }
        return found;
    }

    private QueryScenarios() {
    }
}
