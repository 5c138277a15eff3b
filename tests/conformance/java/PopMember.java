import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.NotifyResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;

/** A member of a group that pops by the stock client's raw calls, with a connection of its own. */
final class PopMember {
    static final int ALL_QUEUES = -1;
    private static final long TIMEOUT_MILLIS = 60_000;
    /** What stock's push consumers ask for. */
    private static final long POLL_MILLIS = 15_000;
    private static final long PAUSE_MILLIS = 50;

    final String group;
    final String topic;
    private final MQClientAPIExt api;
    private final String address;
    private final String brokerName;

    PopMember(Clients clients, String topic, String group) throws Exception {
        this(clients, topic, group, clients.api());
    }

    /** A member that shares the connection of `api` with others. */
    PopMember(Clients clients, String topic, String group, MQClientAPIExt api) throws Exception {
        this.topic = topic;
        this.group = group;
        this.api = api;
        address = clients.masters().get(0);
        brokerName = TopicOps.awaitRoute(clients, topic).getQueueDatas().get(0).getBrokerName();
    }

    /** Messages of one pop, none if there are none. It polls up to `pollMillis`, for which a broker need not wait. */
    List<MessageExt> pop(int queueId, int most, long invisibleMillis, long pollMillis, String tags) throws Exception {
        PopResult result = ask(queueId, most, invisibleMillis, pollMillis, ExpressionType.TAG, tags);
        boolean isFound = result.getPopStatus() == PopStatus.FOUND;
        return isFound ? result.getMsgFoundList() : new ArrayList<>();
    }

    /** One pop by an expression of a type, with the status that the client has made of the answer's code. */
    PopResult ask(int queueId, int most, long invisibleMillis, long pollMillis, String type, String expression)
            throws Exception {
        PopMessageRequestHeader header = header(queueId, most, invisibleMillis, pollMillis);
        header.setExpType(type);
        header.setExp(expression);
        return ask(header);
    }

    /** Messages of one pop in order. It has an attempt of its own if `attemptId` is null. */
    List<MessageExt> popInOrder(int most, long invisibleMillis, long pollMillis, String attemptId) throws Exception {
        PopMessageRequestHeader header = header(ALL_QUEUES, most, invisibleMillis, pollMillis);
        header.setExpType(ExpressionType.TAG);
        header.setExp("*");
        header.setOrder(true);
        header.setAttemptId(attemptId);
        PopResult result = ask(header);
        return result.getPopStatus() == PopStatus.FOUND ? result.getMsgFoundList() : new ArrayList<>();
    }

    private PopMessageRequestHeader header(int queueId, int most, long invisibleMillis, long pollMillis) {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queueId);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(invisibleMillis);
        header.setPollTime(pollMillis);
        header.setInitMode(ConsumeInitMode.MIN);
        header.setOrder(false);
        return header;
    }

    private PopResult ask(PopMessageRequestHeader header) throws Exception {
        return whileBusy(() -> {
            header.setBornTime(System.currentTimeMillis());
            return api.popMessageAsync(address, brokerName, header, TIMEOUT_MILLIS).get();
        });
    }

    /** The result of a request, which is sent again while the broker asks for it. */
    private static <T> T whileBusy(Callable<T> request) throws Exception {
        long untilNanos = System.nanoTime() + TIMEOUT_MILLIS * 1_000_000;
        while (true) {
            try {
                return request.call();
            } catch (ExecutionException refused) {
                if (!isBusy(refused.getCause()) || System.nanoTime() > untilNanos) {
                    throw refused;
                }
                Thread.sleep(PAUSE_MILLIS);
            }
        }
    }

    /** Whether the broker asks to try again, as it does while its machine is too slow for a request. */
    private static boolean isBusy(Throwable refusal) {
        return refusal instanceof MQBrokerException
            && ((MQBrokerException) refusal).getResponseCode() == ResponseCode.SYSTEM_BUSY;
    }

    /** Whether a queue has messages for the group; the broker may wait `pollMillis` until it has. */
    NotifyResult notification(int queueId, long pollMillis) throws Exception {
        return notification(queueId, pollMillis, false, null);
    }

    /** As `notification`; in order, a queue with open messages has some for the attempt that got them alone. */
    NotifyResult notification(int queueId, long pollMillis, boolean isInOrder, String attemptId) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queueId);
        header.setPollTime(pollMillis);
        header.setOrder(isInOrder);
        header.setAttemptId(attemptId);
        return whileBusy(() -> {
            header.setBornTime(System.currentTimeMillis());
            return api.notificationWithPollingStats(address, header, TIMEOUT_MILLIS).get();
        });
    }

    /** The consumer offset of a queue. */
    long committed(int queueId) throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queueId);
        return api.queryConsumerOffsetWithFuture(address, header, TIMEOUT_MILLIS).get();
    }

    /** Drops the connection, as the death of a consumer does. */
    void die() {
        api.shutdown();
    }

    /** As `pop` of all queues with the client's poll time; asks again after a pause, until `untilNanos`. */
    List<MessageExt> await(int most, long invisibleMillis, String tags, long untilNanos) throws Exception {
        while (true) {
            long leftMillis = (untilNanos - System.nanoTime()) / 1_000_000;
            if (leftMillis <= 0) {
                return new ArrayList<>();
            }
            // A stock broker wakes no poll for a message of a retry topic, so a long poll would find it late.
            long pollMillis = Math.min(POLL_MILLIS, Math.min(leftMillis, 10 * PAUSE_MILLIS));
            List<MessageExt> found = pop(ALL_QUEUES, most, invisibleMillis, pollMillis, tags);
            if (!found.isEmpty()) {
                return found;
            }
            Thread.sleep(PAUSE_MILLIS);
        }
    }

    /** The receipt of a popped message. */
    static String receipt(MessageExt message) {
        return message.getProperty(MessageConst.PROPERTY_POP_CK);
    }

    /** The topic that holds the message: the group's retry topic for one that came back. */
    private String heldBy(String[] fields) throws Exception {
        return ExtraInfoUtil.getRealTopic(fields, topic, group);
    }

    boolean ack(String receipt) throws Exception {
        String[] fields = ExtraInfoUtil.split(receipt);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(heldBy(fields));
        header.setQueueId(ExtraInfoUtil.getQueueId(fields));
        header.setOffset(ExtraInfoUtil.getQueueOffset(fields));
        header.setExtraInfo(receipt);
        return isOk(api.ackMessageAsync(address, header, TIMEOUT_MILLIS).get());
    }

    boolean ackAll(List<String> receipts) throws Exception {
        return isOk(api.batchAckMessageAsync(address, topic, group, receipts, TIMEOUT_MILLIS).get());
    }

    /** The receipt that takes the place of `receipt`, null if the broker has refused. */
    String change(String receipt, long invisibleMillis) throws Exception {
        String[] fields = ExtraInfoUtil.split(receipt);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(heldBy(fields));
        header.setQueueId(ExtraInfoUtil.getQueueId(fields));
        header.setOffset(ExtraInfoUtil.getQueueOffset(fields));
        header.setExtraInfo(receipt);
        header.setInvisibleTime(invisibleMillis);
        AckResult result = api.changeInvisibleTimeAsync(address, brokerName, header, TIMEOUT_MILLIS).get();
        return isOk(result) ? result.getExtraInfo() : null;
    }

    private static boolean isOk(AckResult result) {
        return result.getStatus() == AckStatus.OK;
    }

    /** What a consumer sees of a popped message, its receipt apart from its properties. */
    static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> map = Fetch.describe(message);
        String[] fields = ExtraInfoUtil.split(receipt(message));
        @SuppressWarnings("unchecked")
        Map<String, String> properties = (Map<String, String>) map.get("properties");
        properties.remove(MessageConst.PROPERTY_POP_CK);
        Map<String, Object> receipt = new LinkedHashMap<>();
        receipt.put("popTime", ExtraInfoUtil.getPopTime(fields));
        receipt.put("invisibleTime", ExtraInfoUtil.getInvisibleTime(fields));
        receipt.put("retry", ExtraInfoUtil.getRetry(fields));
        receipt.put("brokerName", ExtraInfoUtil.getBrokerName(fields));
        receipt.put("queueId", ExtraInfoUtil.getQueueId(fields));
        receipt.put("queueOffset", ExtraInfoUtil.getQueueOffset(fields));
        map.put("receipt", receipt);
        return map;
    }
}
