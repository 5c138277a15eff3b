import com.alibaba.fastjson.JSONObject;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;

/** Transactions: a message's body begins with the case that it belongs to, and a push consumer counts what arrives. */
final class TransactionScenarios {
    private static final int COMMIT = MessageSysFlag.TRANSACTION_COMMIT_TYPE;
    private static final int ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
    private static final long CALL_MILLIS = 60_000;
    private static final Set<String> BY_HAND =
        new HashSet<>(Arrays.asList("commitAfterCheck", "commitBesideCheck", "doubledCommit", "rollbackAfterCommit"));

    static void register() {
        StockClient.register("transactions", TransactionScenarios::transactions);
    }

    /** Ends of transactions by hand, beside those that the client sends. */
    private static final class Ends {
        private final TransactionMQProducer producer;
        private final String broker;
        private final Map<String, SendResult> halves = new ConcurrentHashMap<>();
        final Map<String, Integer> codes = new TreeMap<>();

        Ends(TransactionMQProducer producer, String broker) {
            this.producer = producer;
            this.broker = broker;
        }

        /** Sends a half message whose place the client tells: TransactionSendResult does not have it. */
        void half(Message message, String body) throws Exception {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, producer.getProducerGroup());
            halves.put(body, producer.send(message));
        }

        boolean knows(String body) {
            return halves.containsKey(body);
        }

        /** Sends an end for the half as it was first stored, waits for the answer, and counts its code. */
        void end(String body, int state) {
            SendResult half = halves.get(body);
            EndTransactionRequestHeader header = new EndTransactionRequestHeader();
            try {
                header.setCommitLogOffset(MessageDecoder.decodeMessageId(half.getOffsetMsgId()).getOffset());
                header.setTranStateTableOffset(half.getQueueOffset());
                header.setProducerGroup(producer.getProducerGroup());
                header.setTopic(half.getMessageQueue().getTopic());
                header.setTransactionId(half.getTransactionId());
                header.setMsgId(half.getMsgId());
                header.setCommitOrRollback(state);
                header.setFromTransactionCheck(false);
                RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
                RemotingCommand answer = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
                    .getRemotingClient().invokeSync(broker, request, CALL_MILLIS);
                count(body.split(" ")[0] + " " + state + " code " + answer.getCode());
            } catch (Exception e) {
                count(body.split(" ")[0] + " " + state + " " + e.getClass().getSimpleName());
            }
        }

        private synchronized void count(String key) {
            codes.merge(key, 1, Integer::sum);
        }
    }

    private static final class Listener implements TransactionListener {
        final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
        volatile Ends ends;

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (new String(message.getBody()).split(" ")[0]) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody());
            int check = checks.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
            switch (body.split(" ")[0]) {
                case "checkedCommit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "checkedRollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "commitAfterCheck":
                    if (check == 1 || !ends.knows(body)) {
                        return LocalTransactionState.UNKNOW;
                    }
                    if (check == 2) {
                        ends.end(body, COMMIT);
                    }
                    return check < 4 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                case "commitBesideCheck":
                    if (!ends.knows(body)) {
                        return LocalTransactionState.UNKNOW;
                    }
                    ends.end(body, COMMIT);
                    return LocalTransactionState.COMMIT_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }

    private static Object transactions(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        int wanted = args.getIntValue("wanted");
        TopicOps.create(clients, topic, 4);
        List<String> bodies = PushScenarios.bodies();
        DefaultMQPushConsumer consumer = clients.push("tx_" + topic);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(PushScenarios.collectInto(bodies));
        consumer.start();
        Listener listener = new Listener();
        TransactionMQProducer producer = clients.transactional("txp_" + topic, listener);
        Ends ends = new Ends(producer, clients.masters().get(0));
        listener.ends = ends;
        for (Object name : args.getJSONArray("cases")) {
            for (int i = 0; i < count; i++) {
                String body = name + " " + i;
                Message message = new Message(topic, "Tag", "key-" + body.replace(' ', '-'), body.getBytes());
                if (!BY_HAND.contains(name)) {
                    producer.sendMessageInTransaction(message, null);
                    continue;
                }
                ends.half(message, body);
                if (name.equals("doubledCommit") || name.equals("rollbackAfterCommit")) {
                    ends.end(body, COMMIT);
                    ends.end(body, name.equals("doubledCommit") ? COMMIT : ROLLBACK);
                }
            }
        }
        Clients.await(args.getDoubleValue("waitSeconds"), () -> new HashSet<>(List.copyOf(bodies)).size() >= wanted);
        Thread.sleep((long) (args.getDoubleValue("quietSeconds") * 1000)); // for checks and copies that must not come
        Map<String, Object> seen = new LinkedHashMap<>();
        synchronized (bodies) {
            seen.put("received", bodies.toArray());
        }
        Map<String, Integer> checks = new TreeMap<>();
        listener.checks.forEach((body, times) -> checks.put(body, times.get()));
        seen.put("checks", checks);
        seen.put("codes", ends.codes);
        return seen;
    }
}
