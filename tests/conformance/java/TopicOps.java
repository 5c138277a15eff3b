import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Topics made, whole topics read back, single records viewed by their place in the log. */
final class TopicOps {
    static void register() {
        StockClient.register("createTopic", (clients, args) -> {
            create(clients, args.getString("topic"), args.getIntValue("queues"));
            return "created";
        });
        StockClient.register("readTopics", TopicOps::readTopics);
        StockClient.register("readQueues", TopicOps::readQueues);
        StockClient.register("viewRecords", TopicOps::viewRecords);
        StockClient.register("queueRanges", TopicOps::queueRanges);
        StockClient.register("topics", (clients, args) -> clients.admin().fetchAllTopicList().getTopicList());
    }

    /** Creates the topic on every master and waits until its route is out. */
    static void create(Clients clients, String topic, int queues) throws Exception {
        DefaultMQAdminExt admin = clients.admin();
        for (String master : clients.masters()) {
            admin.createAndUpdateTopicConfig(master, new TopicConfig(topic, queues, queues, 6));
        }
        awaitRoute(clients, topic);
    }

    /** The topic's route, once the name server has it. */
    static TopicRouteData awaitRoute(Clients clients, String topic) throws Exception {
        DefaultMQAdminExt admin = clients.admin();
        AtomicReference<TopicRouteData> route = new AtomicReference<>();
        boolean isOut = Clients.await(60, () -> {
            try {
                route.set(admin.examineTopicRouteInfo(topic));
            } catch (Exception notYet) {
                return false;
            }
            return !route.get().getQueueDatas().isEmpty();
        });
        if (!isOut) {
            throw new IllegalStateException("no route for " + topic + " after 20 s");
        }
        return route.get();
    }

    private static Object readTopics(Clients clients, JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = clients.pull("judge_reader");
        List<Map<String, Object>> found = new ArrayList<>();
        for (Object topic : args.getJSONArray("topics")) {
            found.addAll(Fetch.topic(consumer, (String) topic));
        }
        return found;
    }

    /** Reads queues that need no route: {"broker", "routeTopic", "queues": [[topic, queueId], ...]}. */
    private static Object readQueues(Clients clients, JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = clients.pull("judge_reader");
        consumer.fetchSubscribeMessageQueues(args.getString("routeTopic"));
        List<Map<String, Object>> found = new ArrayList<>();
        for (Object entry : args.getJSONArray("queues")) {
            JSONArray pair = (JSONArray) entry;
            MessageQueue queue = new MessageQueue(pair.getString(0), args.getString("broker"), pair.getIntValue(1));
            for (MessageExt message : Fetch.queue(consumer, queue)) {
                found.add(Fetch.describe(message));
            }
        }
        return found;
    }

    /** Minimum and maximum offset of queues: {"broker", "routeTopic", "queues"} as above, to [[min, max], ...]. */
    private static Object queueRanges(Clients clients, JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = clients.pull("judge_reader");
        consumer.fetchSubscribeMessageQueues(args.getString("routeTopic"));
        List<List<Long>> ranges = new ArrayList<>();
        for (Object entry : args.getJSONArray("queues")) {
            JSONArray pair = (JSONArray) entry;
            MessageQueue queue = new MessageQueue(pair.getString(0), args.getString("broker"), pair.getIntValue(1));
            ranges.add(List.of(consumer.minOffset(queue), consumer.maxOffset(queue)));
        }
        return ranges;
    }

    /** Views records [[topic, commit log offset], ...]; one that is refused is reported as {"offset", "error"}. */
    private static Object viewRecords(Clients clients, JSONObject args) throws Exception {
        String[] master = clients.masters().get(0).split(":");
        InetSocketAddress address = new InetSocketAddress(master[0], Integer.parseInt(master[1]));
        DefaultMQAdminExt admin = clients.admin();
        return args.getJSONArray("records").parallelStream().map(entry -> {
            JSONArray pair = (JSONArray) entry;
            long offset = pair.getLongValue(1);
            try {
                return Fetch.describe(
                    admin.viewMessage(pair.getString(0), MessageDecoder.createMessageId(address, offset)));
            } catch (Exception refused) {
                Map<String, Object> failure = new LinkedHashMap<>();
                failure.put("offset", offset);
                failure.put("error", refused.toString());
                return failure;
            }
        }).collect(Collectors.toList());
    }

    private TopicOps() {
    }
}
