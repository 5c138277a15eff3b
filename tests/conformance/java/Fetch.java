import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages as plain maps, and whole queues read back by pulls. */
final class Fetch {
    static final int PULL_COUNT = 32;
    private static final int BODY_TEXT_LIMIT = 200;

    /** Every field that a consumer can see; short bodies also as text. */
    static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", message.getTopic());
        map.put("queueId", message.getQueueId());
        map.put("queueOffset", message.getQueueOffset());
        map.put("commitLogOffset", message.getCommitLogOffset());
        map.put("storeSize", message.getStoreSize());
        map.put("flag", message.getFlag());
        map.put("sysFlag", message.getSysFlag());
        map.put("bornTimestamp", message.getBornTimestamp());
        map.put("storeTimestamp", message.getStoreTimestamp());
        map.put("bornHost", host((InetSocketAddress) message.getBornHost()));
        map.put("storeHost", host((InetSocketAddress) message.getStoreHost()));
        map.put("reconsumeTimes", message.getReconsumeTimes());
        map.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        map.put("bodyCRC", message.getBodyCRC());
        map.put("msgId", message.getMsgId());
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        // added by the pull path of the client, not stored
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        map.put("properties", properties);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        map.put("bodyLength", body.length);
        map.put("bodySha256", sha256(body));
        if (body.length <= BODY_TEXT_LIMIT) {
            map.put("body", new String(body, StandardCharsets.UTF_8));
        }
        return map;
    }

    private static String host(InetSocketAddress address) {
        return address == null ? null : address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    static String sha256(byte[] bytes) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }

    /** All messages of a queue from its minimum to its maximum offset. */
    static List<MessageExt> queue(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, PULL_COUNT, 60_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(
                    queue + ": " + result.getPullStatus() + " at " + offset + " of " + end + " leads to "
                        + result.getNextBeginOffset());
            }
            offset = result.getNextBeginOffset();
        }
        return found;
    }

    /** All messages of all queues of a topic that the name server knows. */
    static List<Map<String, Object>> topic(DefaultMQPullConsumer consumer, String topic) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        queues.sort(null);
        for (MessageQueue queue : queues) {
            for (MessageExt message : queue(consumer, queue)) {
                found.add(describe(message));
            }
        }
        return found;
    }

    private Fetch() {
    }
}
