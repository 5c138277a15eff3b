import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What waits in a store while it changes hands: delay levels, times of delivery, transactions without an end. */
final class TakeOverScenarios {
    private static final String GROUP = "judge_take_over";

    static void register() {
        StockClient.register("leaveWaiting", TakeOverScenarios::leaveWaiting);
        StockClient.register("awaitBodies", TakeOverScenarios::awaitBodies);
    }

    /** Three messages of a delay level, two with a time of delivery, one half message that nobody ends. */
    private static Object leaveWaiting(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        DefaultMQProducer producer = clients.producer("judge_waiting");
        for (int i = 0; i < 3; i++) {
            Message delayed = SendScenarios.message(topic, null, null, "delayed " + i);
            delayed.setDelayTimeLevel(args.getIntValue("level"));
            producer.send(delayed);
        }
        for (int i = 0; i < 2; i++) {
            Message timed = SendScenarios.message(topic, null, null, "timed " + i);
            timed.setDelayTimeSec(args.getIntValue("seconds"));
            producer.send(timed);
        }
        TransactionMQProducer transactions = transactionProducer(clients);
        try {
            transactions.sendMessageInTransaction(SendScenarios.message(topic, null, null, "half"), null);
        } finally {
            transactions.shutdown();
        }
        return 6;
    }

    /** Leaves every transaction open and commits when the broker asks again. */
    private static TransactionMQProducer transactionProducer(Clients clients) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(GROUP);
        producer.setNamesrvAddr(clients.namesrv);
        producer.setInstanceName(GROUP + "-" + System.nanoTime());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        return producer;
    }

    /** The bodies in a topic once there are `count`, or what there is after `seconds`; ends open transactions meanwhile. */
    private static Object awaitBodies(Clients clients, JSONObject args) throws Exception {
        TransactionMQProducer transactions = transactionProducer(clients);
        try {
            // a broker asks only producer groups that have told it of themselves, to brokers whose route is known
            MQClientInstance client = transactions.getDefaultMQProducerImpl().getMqClientFactory();
            client.updateTopicRouteInfoFromNameServer(args.getString("topic"));
            client.sendHeartbeatToAllBrokerWithLock();
            DefaultMQPullConsumer reader = clients.pull("judge_reader");
            long deadline = System.nanoTime() + args.getLongValue("seconds") * 1_000_000_000L;
            List<String> bodies = new ArrayList<>();
            while (bodies.size() < args.getIntValue("count") && System.nanoTime() < deadline) {
                Thread.sleep(100);
                bodies.clear();
                for (Map<String, Object> message : Fetch.topic(reader, args.getString("topic"))) {
                    bodies.add((String) message.get("body"));
                }
            }
            bodies.sort(null);
            return bodies;
        } finally {
            transactions.shutdown();
        }
    }

    private TakeOverScenarios() {
    }
}
