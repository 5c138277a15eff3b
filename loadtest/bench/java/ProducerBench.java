import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Synchronous sends of the stock Java producer from many threads; prints one JSON object.
 * Arguments: name server address, topic, threads, body bytes, warm-up seconds, measured seconds.
 */
public final class ProducerBench {
    private static final int SAMPLES_PER_THREAD = 1 << 16;
    /** Of each request: a slow machine makes a request late, and no message fail. */
    private static final int PATIENT_MILLIS = 60_000;

    private final LongAdder sent = new LongAdder();
    private final LongAdder failed = new LongAdder();
    private volatile boolean measuring;
    private volatile boolean running = true;

    public static void main(String[] args) throws Exception {
        if (args.length != 6) {
            System.err.println("usage: ProducerBench NAMESRV TOPIC THREADS BODY_BYTES WARMUP_S SECONDS");
            System.exit(1);
        }
        new ProducerBench().run(args[0], args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]),
            Double.parseDouble(args[4]), Double.parseDouble(args[5]));
        System.exit(0);
    }

    private void run(String namesrv, String topic, int threads, int bodyBytes, double warmupS, double seconds)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java_bench");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("bench-" + System.nanoTime());
        producer.setMqClientApiTimeout(PATIENT_MILLIS);
        producer.setSendMsgTimeout(PATIENT_MILLIS);
        producer.start();
        // Threads that find the first look-up of a route under way give up after 3 s, whatever the time-outs are.
        producer.fetchPublishMessageQueues(topic);
        byte[] body = new byte[bodyBytes];
        Arrays.fill(body, (byte) 'x');
        CountDownLatch ended = new CountDownLatch(threads);
        long[][] samples = new long[threads][];
        for (int i = 0; i < threads; i++) {
            final int index = i;
            new Thread(() -> {
                try {
                    samples[index] = send(producer, topic, index, body);
                } finally {
                    ended.countDown();
                }
            }).start();
        }
        Thread.sleep((long) (warmupS * 1000));
        long warm = sent.sum();
        long begin = System.nanoTime();
        measuring = true;
        Thread.sleep((long) (seconds * 1000));
        long count = sent.sum() - warm;
        double elapsed = (System.nanoTime() - begin) / 1e9;
        running = false;
        ended.await();
        report(count, elapsed, samples);
        producer.shutdown();
    }

    /** Sends until the end and returns the latencies (ns) of the measured part. */
    private long[] send(DefaultMQProducer producer, String topic, int thread, byte[] body) {
        long[] latencies = new long[SAMPLES_PER_THREAD];
        int n = 0;
        for (long i = 0; running; i++) {
            long begin = System.nanoTime();
            try {
                SendResult result = producer.send(new Message(topic, "TagA", thread + "-" + i, body));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    sent.increment();
                } else {
                    failed.increment();
                }
            } catch (Exception e) {
                failed.increment();
            }
            if (measuring && n < latencies.length) {
                latencies[n++] = System.nanoTime() - begin;
            }
        }
        return Arrays.copyOf(latencies, n);
    }

    private void report(long count, double elapsed, long[][] samples) {
        long[] all = Arrays.stream(samples).filter(Objects::nonNull).flatMapToLong(Arrays::stream).sorted().toArray();
        StringBuilder out = new StringBuilder();
        out.append(String.format("{\"messages\":%d,\"messages_per_s\":%.1f,\"failed\":%d,\"all_messages\":%d,",
            count, count / elapsed, failed.sum(), sent.sum()));
        out.append("\"latency_us\":{");
        String[] names = {"p50", "p99", "p99_9", "max"};
        double[] percents = {50, 99, 99.9, 100};
        for (int i = 0; i < names.length && all.length > 0; i++) {
            int at = (int) Math.min(all.length - 1, Math.ceil(all.length * percents[i] / 100) - 1);
            out.append(String.format("%s\"%s\":%.1f", i > 0 ? "," : "", names[i], all[Math.max(0, at)] / 1e3));
        }
        System.out.write(out.append("}}\n").toString().getBytes(StandardCharsets.UTF_8), 0, out.length());
        System.out.flush();
    }
}
