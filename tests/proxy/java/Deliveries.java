import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * What a push consumer was given, and the rule for what it fails. A client may send a message twice that a busy machine
 * has stored too late, so equal attempts of a body count once.
 */
final class Deliveries implements MessageListener {
    interface Rule {
        /** True if the listener succeeds with a body at an attempt, from 1 on. */
        boolean succeeds(String body, int attempt) throws InterruptedException;
    }

    private final Rule rule;
    private final Set<String> attempts = new HashSet<>();
    private final Set<String> done = new LinkedHashSet<>();
    private int secondAttempts;

    Deliveries(Rule rule) {
        this.rule = rule;
    }

    @Override
    public ConsumeResult consume(MessageView message) {
        String body = text(message);
        int attempt = message.getDeliveryAttempt();
        synchronized (this) {
            if (attempts.add(body + " " + attempt)) {
                secondAttempts += attempt == 2 ? 1 : 0;
            }
            notifyAll();
        }
        try {
            if (!rule.succeeds(body, attempt)) {
                return ConsumeResult.FAILURE;
            }
        } catch (InterruptedException exception) {
            return ConsumeResult.FAILURE;
        }
        synchronized (this) {
            done.add(body);
        }
        return ConsumeResult.SUCCESS;
    }

    static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    synchronized int total() {
        return attempts.size();
    }

    synchronized int secondAttempts() {
        return secondAttempts;
    }

    /** Bodies that come after a later one of their message group. A body is "GROUP NUMBER". */
    synchronized int outOfOrder() {
        Map<String, Integer> last = new TreeMap<>();
        int found = 0;
        for (String body : done) {
            String[] words = body.split(" ");
            int number = Integer.parseInt(words[1]);
            found += number < last.getOrDefault(words[0], -1) ? 1 : 0;
            last.put(words[0], number);
        }
        return found;
    }

    /** Waits for `wanted` deliveries, then some seconds for more. */
    synchronized void await(int wanted, double seconds, double quietSeconds) throws InterruptedException {
        waitUntil(wanted, seconds);
        waitUntil(wanted + 1, quietSeconds);
    }

    private void waitUntil(int wanted, double seconds) throws InterruptedException {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (attempts.size() < wanted && System.nanoTime() < deadline) {
            wait(10);
        }
    }
}
