import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Stock's push consumers whose brokers assign them their queues, and whose group pops. */
final class PopPushScenarios {
    private static final double ASSIGNED_SECONDS = 100;
    private static final int MEMBERS = 2;

    static void register() {
        StockClient.register("popPush", PopPushScenarios::push);
    }

    private static DefaultMQPushConsumer member(
            Clients clients, String group, String topic, int number, List<Map<String, Object>> calls) throws Exception {
        DefaultMQPushConsumer consumer = clients.push(group);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            boolean fails = "TagB".equals(message.getTags()) && message.getReconsumeTimes() == 0;
            Map<String, Object> call = new LinkedHashMap<>();
            call.put("member", number);
            call.put("body", new String(message.getBody()));
            call.put("msgId", message.getMsgId());
            call.put("reconsumeTimes", message.getReconsumeTimes());
            call.put("isPopped", message.getProperty(MessageConst.PROPERTY_POP_CK) != null);
            call.put("succeeds", !fails);
            call.put("at", System.currentTimeMillis());
            calls.add(call);
            context.setDelayLevelWhenNextConsume(0); // 10 s, the shortest
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static boolean pops(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getPopProcessQueueTable().keySet().stream()
            .anyMatch(queue -> queue.getTopic().equals(topic));
    }

    /**
     * Two members share all queues. TagA succeeds, TagB fails once, TagC is subscribed to by nobody. Messages are sent
     * once both members pop, because a broker assigns queues only when it knows the topic's route.
     */
    private static Object push(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        List<Map<String, Object>> calls = Collections.synchronizedList(new ArrayList<>());
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            members.add(member(clients, group, topic, number, calls));
            members.get(number).start();
        }
        AdminOps.run("setConsumeMode", "-n", clients.namesrv, "-b", clients.masters().get(0), "-t", topic, "-g", group,
            "-m", "POP", "-q", "-1");
        Map<String, Object> seen = new LinkedHashMap<>();
        long since = System.currentTimeMillis();
        seen.put("assigned", Clients.await(
            ASSIGNED_SECONDS, () -> members.stream().allMatch(member -> pops(member, topic))));
        seen.put("assignedAfterMillis", System.currentTimeMillis() - since);
        seen.put("sent", Map.of());
        seen.put("calls", calls);
        if (!(boolean) seen.get("assigned")) {
            return seen;
        }
        DefaultMQProducer producer = clients.producer("judge_pop_push");
        Map<String, String> sent = new LinkedHashMap<>();
        String[] tags = {"TagA", "TagB", "TagC"};
        int count = args.getIntValue("count");
        for (int i = 0; i < count; i++) {
            String tag = tags[i % tags.length];
            String body = tag + " " + i;
            sent.put(body, producer.send(SendScenarios.message(topic, tag, "key-" + i, body)).getMsgId());
        }
        seen.put("sent", sent);
        Clients.await(args.getDoubleValue("waitSeconds"), () -> calls.size() >= args.getIntValue("wanted"));
        Thread.sleep((long) (1000 * args.getDoubleValue("lookSeconds")));
        seen.put("calls", new ArrayList<>(calls));
        return seen;
    }

    private PopPushScenarios() {
    }
}
