import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers whose group pops, while its members come and go, are many, or want their messages in order. */
final class PopShiftScenarios {
    private static final double ASSIGNED_SECONDS = 100;

    static void register() {
        StockClient.register("popShift", PopShiftScenarios::shift);
        StockClient.register("popCrowd", PopShiftScenarios::crowd);
        StockClient.register("popModeInOrder", PopShiftScenarios::inOrder);
    }

    /** Calls of the listeners of a group: for each body the members that had it, in order. */
    private static final class Calls {
        final Map<String, List<String>> byBody = new ConcurrentHashMap<>();

        void add(MessageExt message, String member) {
            byBody.computeIfAbsent(new String(message.getBody()), any -> Collections.synchronizedList(
                new ArrayList<>())).add(member);
        }
    }

    /** A member that pops. Once it is to die, its listener keeps the next message until then, and fails. */
    private static final class Member {
        final DefaultMQPushConsumer consumer;
        private volatile boolean isDying;
        volatile String held;
        private volatile boolean isDead;

        Member(Clients clients, JSONObject args, String name, Calls calls) throws Exception {
            consumer = clients.push(args.getString("group"));
            consumer.setClientRebalance(false);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.setPopBatchNums(4);
            consumer.setPopInvisibleTime(args.getLongValue("invisibleMillis"));
            consumer.setClientCallbackExecutorThreads(1);
            consumer.subscribe(args.getString("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    boolean isPopped = message.getProperty(MessageConst.PROPERTY_POP_CK) != null;
                    calls.add(message, isPopped ? name : "pulled by " + name);
                }
                while (isDying && !isDead) {
                    held = new String(messages.get(0).getBody());
                    Thread.yield();
                }
                return isDead ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        boolean isAssigned(String topic) {
            return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getPopProcessQueueTable().keySet()
                .stream().anyMatch(queue -> queue.getTopic().equals(topic));
        }

        /** Drops the connections while the listener has a message. False if it got none in `seconds`. */
        boolean die(double seconds) throws InterruptedException {
            isDying = true;
            boolean holds = Clients.await(seconds, () -> held != null);
            consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl().shutdown();
            isDead = true;
            return holds;
        }
    }

    private static void setMode(Clients clients, JSONObject args) throws Exception {
        AdminOps.run("setConsumeMode", "-n", clients.namesrv, "-b", clients.masters().get(0), "-t",
            args.getString("topic"), "-g", args.getString("group"), "-m", "POP", "-q", args.getString("share"));
    }

    private static boolean areAssigned(List<Member> members, String topic) throws InterruptedException {
        return Clients.await(ASSIGNED_SECONDS, () -> members.stream().allMatch(member -> member.isAssigned(topic)));
    }

    private static void send(Clients clients, JSONObject args, int from, int to) throws Exception {
        DefaultMQProducer producer = clients.producer("judge_pops");
        for (int i = from; i < to; i++) {
            producer.send(SendScenarios.message(args.getString("topic"), "TagA", "key-" + i, "body " + i));
            Thread.sleep(args.getLongValue("pauseMillis"));
        }
    }

    /** Counts what a group that pulls gets of the topic: one body as often as it came. */
    private static List<String> pushed(Clients clients, JSONObject args) throws Exception {
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push(args.getString("group") + "_pushed");
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> bodies.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return bodies;
    }

    /**
     * Two members pop, and two other groups pull. Between four parts of the messages another member joins, the first one
     * leaves, and the second one dies.
     */
    private static Object shift(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        double seconds = args.getDoubleValue("waitSeconds");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        setMode(clients, args);
        List<String> pushed = pushed(clients, args);
        DefaultLitePullConsumer pull = clients.litePull(args.getString("group") + "_pulling");
        pull.subscribe(topic, "*");
        pull.start();
        Calls calls = new Calls();
        Member leaving = new Member(clients, args, "leaving", calls);
        Member dying = new Member(clients, args, "dying", calls);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("assigned", areAssigned(List.of(leaving, dying), topic));
        send(clients, args, 0, count / 4);
        Member joined = new Member(clients, args, "joined", calls);
        seen.put("joined", areAssigned(List.of(joined), topic));
        send(clients, args, count / 4, count / 2);
        leaving.consumer.shutdown();
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            Future<Boolean> death = pool.submit(() -> dying.die(seconds));
            send(clients, args, count / 2, 3 * count / 4);
            seen.put("died", death.get());
        } finally {
            pool.shutdownNow();
        }
        send(clients, args, 3 * count / 4, count);
        List<String> pulled = new ArrayList<>();
        long until = PopWork.after(seconds);
        long lookUntil = Long.MAX_VALUE;
        while (System.nanoTime() < Math.min(until, lookUntil)) {
            pull.poll(100).forEach(message -> pulled.add(new String(message.getBody())));
            boolean isAll = calls.byBody.size() >= count && pulled.size() >= count && pushed.size() >= count
                && dying.held != null && calls.byBody.get(dying.held).size() > 1;
            if (isAll && lookUntil == Long.MAX_VALUE) {
                lookUntil = PopWork.after(args.getDoubleValue("lookSeconds"));
            }
        }
        seen.put("calls", calls.byBody);
        seen.put("pulled", pulled);
        seen.put("pushed", new ArrayList<>(pushed));
        return seen;
    }

    /** Many more members than queues: a broker gives each of them one queue, and they share its messages. */
    private static Object crowd(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        setMode(clients, args);
        Calls calls = new Calls();
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < args.getIntValue("members"); i++) {
            members.add(new Member(clients, args, "member " + i, calls));
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("assigned", areAssigned(members, topic));
        send(clients, args, 0, count);
        Clients.await(args.getDoubleValue("waitSeconds"), () -> calls.byBody.size() >= count);
        Thread.sleep((long) (1000 * args.getDoubleValue("lookSeconds")));
        seen.put("calls", calls.byBody);
        seen.put("queues", members.stream().filter(member -> member.isAssigned(topic)).count());
        return seen;
    }

    /** A listener in order, in a group that pops: each message fails some times before it succeeds. */
    private static Object inOrder(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        int count = args.getIntValue("count");
        int fails = args.getIntValue("fails");
        TopicOps.create(clients, topic, 1);
        args.put("share", "-1");
        setMode(clients, args);
        List<Map<String, Object>> calls = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = clients.push(args.getString("group"));
        consumer.setClientRebalance(false);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            Map<String, Object> call = new LinkedHashMap<>();
            call.put("offset", message.getQueueOffset());
            call.put("times", message.getReconsumeTimes());
            call.put("isPopped", message.getProperty(MessageConst.PROPERTY_POP_CK) != null);
            calls.add(call);
            boolean isFailing = message.getReconsumeTimes() < fails;
            return isFailing ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        PopWork.send(clients, topic, count, "TagA");
        Clients.await(args.getDoubleValue("waitSeconds"), () -> calls.size() >= count * (fails + 1));
        Thread.sleep((long) (1000 * args.getDoubleValue("lookSeconds")));
        return new ArrayList<>(calls);
    }

    private PopShiftScenarios() {
    }
}
