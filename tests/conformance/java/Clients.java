import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.mqclient.DoNothingClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The clients of one operation: each with its own instance (own connections), all shut down at its end. */
final class Clients implements AutoCloseable {
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    /** Of each request: a process that gets no CPU for some seconds is no silent server. */
    private static final int PATIENT_MILLIS = 60_000;
    final String namesrv;
    private final Deque<Runnable> closers = new ConcurrentLinkedDeque<>();
    private DefaultMQAdminExt admin;

    Clients(String namesrv) {
        this.namesrv = namesrv;
    }

    private void configure(ClientConfig config) {
        config.setNamesrvAddr(namesrv);
        config.setInstanceName("judge-" + INSTANCES.incrementAndGet());
        config.setPersistConsumerOffsetInterval(1000);
        config.setMqClientApiTimeout(PATIENT_MILLIS);
        // A client that changes its queues raises its subscription's version and tells brokers, unless a heartbeat is
        // just under way; then its pulls are refused until the next one, 30 s later by default.
        config.setHeartbeatBrokerInterval(2000);
    }

    DefaultMQProducer producer(String group) throws Exception {
        return producer(group, null);
    }

    /** A producer of a namespace (null: of none). */
    DefaultMQProducer producer(String group, String namespace) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        configure(producer);
        producer.setNamespace(namespace);
        producer.setSendMsgTimeout(PATIENT_MILLIS);
        producer.start();
        closers.push(producer::shutdown);
        return producer;
    }

    TransactionMQProducer transactional(String group, TransactionListener listener) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        configure(producer);
        producer.setSendMsgTimeout(PATIENT_MILLIS);
        producer.setTransactionListener(listener);
        producer.start();
        closers.push(producer::shutdown);
        return producer;
    }

    /** A push consumer, not started, reading from the first message; close it by hand or leave it to this object. */
    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        closers.push(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1000);
        closers.push(consumer::shutdown);
        return consumer;
    }

    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        configure(consumer);
        consumer.start();
        closers.push(consumer::shutdown);
        return consumer;
    }

    /** The raw calls of the client, over connections of their own. */
    MQClientAPIExt api() {
        return api(true);
    }

    /** The raw calls of a client that decompresses bodies, or shows them as they are stored. */
    MQClientAPIExt api(boolean decompresses) {
        ClientConfig config = new ClientConfig();
        configure(config);
        config.setDecodeDecompressBody(decompresses);
        MQClientAPIExt api = new MQClientAPIExt(
            config, new NettyClientConfig(), new DoNothingClientRemotingProcessor(null), null);
        api.start();
        closers.push(api::shutdown);
        return api;
    }

    synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt(PATIENT_MILLIS);
            configure(admin);
            admin.start();
            closers.push(admin::shutdown);
        }
        return admin;
    }

    /** Addresses of all masters that the name server lists. */
    List<String> masters() throws Exception {
        ClusterInfo info = admin().examineBrokerClusterInfo();
        List<String> found = new ArrayList<>();
        for (BrokerData data : info.getBrokerAddrTable().values()) {
            found.add(data.getBrokerAddrs().get(0L));
        }
        return found;
    }

    /** Polls until `condition` holds; false after `seconds`. */
    static boolean await(double seconds, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(10);
        }
        return true;
    }

    @Override
    public void close() {
        while (!closers.isEmpty()) {
            try {
                closers.pop().run();
            } catch (RuntimeException failure) {
                failure.printStackTrace();
            }
        }
    }
}
