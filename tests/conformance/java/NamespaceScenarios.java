import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Clients of a namespace. */
final class NamespaceScenarios {
    private static final int COUNT = 5;

    static void register() {
        StockClient.register("namespaceSend", NamespaceScenarios::send);
        StockClient.register("namespaceConsume", NamespaceScenarios::consume);
    }

    /** Sends "java 0" and so on to the namespace's topic; the topics of the results' queues. */
    private static Object send(Clients clients, JSONObject args) throws Exception {
        DefaultMQProducer producer = clients.producer("judge_ns_send", args.getString("namespace"));
        List<String> topics = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            byte[] body = ("java " + i).getBytes(StandardCharsets.UTF_8);
            topics.add(producer.send(new Message(args.getString("topic"), body)).getMessageQueue().getTopic());
        }
        return topics;
    }

    /** The bodies and topics of `count` messages, as a member of the namespace's group. */
    private static Object consume(Clients clients, JSONObject args) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.setNamespace(args.getString("namespace"));
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // what its listener has returned is committed then
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> seen.add(m.getTopic() + " " + new String(m.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Clients.await(60, () -> seen.size() >= args.getIntValue("count"));
        return new ArrayList<>(seen);
    }

    private NamespaceScenarios() {
    }
}
