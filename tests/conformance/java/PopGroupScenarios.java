import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Many members of a group that pop, deaths among them, and groups that pull from the same topic. */
final class PopGroupScenarios {
    private static final int MEMBERS_PER_CONNECTION = 8;

    static void register() {
        StockClient.register("popMany", PopGroupScenarios::many);
        StockClient.register("popBesidePulls", PopGroupScenarios::besidePulls);
    }

    /** Attempts of each message: the member, and whether it has acknowledged. */
    private static final class Attempts {
        final Map<String, List<String>> byBody = new ConcurrentHashMap<>();
        private final Map<String, Boolean> acked = new ConcurrentHashMap<>();

        void add(String body, String member, boolean isAcked) {
            byBody.computeIfAbsent(body, any -> Collections.synchronizedList(new ArrayList<>())).add(member);
            if (isAcked) {
                acked.put(body, true);
            }
        }

        int done() {
            return acked.size();
        }
    }

    /** Pops and acknowledges until all is done. */
    private static Object live(PopMember member, String name, JSONObject args, Attempts attempts) throws Exception {
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while (attempts.done() < args.getIntValue("count") && System.nanoTime() < until) {
            for (MessageExt message : member.pop(PopMember.ALL_QUEUES, 2, 60_000, 0, "*")) {
                attempts.add(new String(message.getBody()), name, member.ack(PopMember.receipt(message)));
            }
            Thread.sleep(20);
        }
        return null;
    }

    /** Pops once it gets messages, and dies with them. */
    private static Object die(PopMember member, String name, JSONObject args, Attempts attempts) throws Exception {
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        for (MessageExt message : member.await(2, args.getLongValue("invisibleMillis"), "*", until)) {
            attempts.add(new String(message.getBody()), name, false);
        }
        member.die();
        return null;
    }

    /** More members than queues drain a topic. Some die with what they have, before the others begin. */
    private static Object many(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        PopWork.send(clients, topic, args.getIntValue("count"), "TagA");
        Attempts attempts = new Attempts();
        int dying = args.getIntValue("dying");
        int members = args.getIntValue("members");
        ExecutorService pool = Executors.newFixedThreadPool(members);
        try {
            CountDownLatch deaths = new CountDownLatch(dying);
            List<Future<Object>> running = new ArrayList<>();
            MQClientAPIExt shared = null;
            for (int i = 0; i < members; i++) {
                String name = (i < dying ? "dying " : "live ") + i;
                if (i < dying) {
                    PopMember member = new PopMember(clients, topic, group);
                    running.add(pool.submit(() -> {
                        try {
                            return die(member, name, args, attempts);
                        } finally {
                            deaths.countDown();
                        }
                    }));
                    continue;
                }
                shared = shared == null || i % MEMBERS_PER_CONNECTION == 0 ? clients.api() : shared;
                PopMember member = new PopMember(clients, topic, group, shared);
                running.add(pool.submit(() -> {
                    deaths.await();
                    return live(member, name, args, attempts);
                }));
            }
            for (Future<Object> one : running) {
                one.get();
            }
        } finally {
            pool.shutdownNow();
        }
        PopMember last = new PopMember(clients, topic, group);
        double lookSeconds = args.getDoubleValue("lookSeconds");
        int again = last.await(PopWork.MOST, 60_000, "*", PopWork.after(lookSeconds)).size();
        return Map.of("attempts", attempts.byBody, "done", attempts.done(), "again", again);
    }

    /** One topic: a group that pops, one that is pushed to, one that pulls by a lite consumer. */
    private static Object besidePulls(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        String broker = clients.masters().get(0);
        TopicOps.create(clients, topic, args.getIntValue("queues"));
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("setConsumeMode", AdminOps.run("setConsumeMode", "-n", clients.namesrv, "-b", broker, "-t", topic,
            "-g", group, "-m", "POP", "-q", "8"));
        List<String> pushed = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer push = clients.push(group + "_pushed");
        push.subscribe(topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> pushed.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();
        DefaultLitePullConsumer pull = clients.litePull(group + "_pulling");
        pull.subscribe(topic, "*");
        pull.start();
        int count = args.getIntValue("count");
        PopWork.send(clients, topic, count, "TagA");
        PopMember member = new PopMember(clients, topic, group);
        List<String> popped = new ArrayList<>();
        List<String> pulled = new ArrayList<>();
        long until = PopWork.after(args.getDoubleValue("waitSeconds"));
        while ((popped.size() < count || pulled.size() < count || pushed.size() < count) && System.nanoTime() < until) {
            for (MessageExt message : member.pop(PopMember.ALL_QUEUES, PopWork.MOST, 60_000, 0, "*")) {
                popped.add(new String(message.getBody()));
                member.ack(PopMember.receipt(message));
            }
            pull.poll(100).forEach(message -> pulled.add(new String(message.getBody())));
        }
        seen.put("popped", popped);
        seen.put("pulled", pulled);
        seen.put("pushed", new ArrayList<>(pushed));
        Map<String, Long> committed = new TreeMap<>();
        int queues = args.getIntValue("queues");
        for (int queue = 0; queue < queues; queue++) {
            while (member.committed(queue) < count / queues && System.nanoTime() < until) {
                Thread.sleep(20);
            }
            committed.put(String.valueOf(queue), member.committed(queue));
        }
        seen.put("committed", committed);
        seen.put("consumerProgress", AdminOps.run("consumerProgress", "-n", clients.namesrv, "-g", group, "-t", topic));
        seen.put("brokerStatus", AdminOps.run("brokerStatus", "-n", clients.namesrv, "-b", broker));
        return seen;
    }

    private PopGroupScenarios() {
    }
}
