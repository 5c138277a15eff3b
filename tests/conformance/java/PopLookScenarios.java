import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.PeekMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageResponseHeader;

/** Looks at the messages and polls of a group: the client has their requests, and no call that sends them. */
final class PopLookScenarios {
    private static final long TIMEOUT_MILLIS = 30_000;

    static void register() {
        StockClient.register("popLooks", PopLookScenarios::looks);
    }

    /** A connection that looks at one topic for one group. */
    private static final class Looker {
        private final MQClientAPIExt api;
        private final String address;
        private final String topic;
        private final String group;

        Looker(Clients clients, String topic, String group) throws Exception {
            api = clients.api();
            address = clients.masters().get(0);
            this.topic = topic;
            this.group = group;
        }

        private RemotingCommand ask(int code, CommandCustomHeader header) throws Exception {
            return api.getRemotingClient().invokeSync(
                address, RemotingCommand.createRequestCommand(code, header), TIMEOUT_MILLIS);
        }

        /** Code, restNum and messages of one look. */
        Map<String, Object> peek(int queueId, int most) throws Exception {
            PeekMessageRequestHeader header = new PeekMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(queueId);
            header.setMaxMsgNums(most);
            RemotingCommand answer = ask(RequestCode.PEEK_MESSAGE, header);
            Map<String, Object> seen = new LinkedHashMap<>();
            seen.put("code", answer.getCode());
            PopMessageResponseHeader fields =
                (PopMessageResponseHeader) answer.decodeCommandCustomHeader(PopMessageResponseHeader.class);
            seen.put("rest", fields.getRestNum());
            TreeSet<String> messages = new TreeSet<>();
            if (answer.getCode() == ResponseCode.SUCCESS) {
                for (MessageExt message : MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody()))) {
                    messages.add(message.getTopic() + " " + message.getQueueId() + " " + message.getQueueOffset() + " "
                        + message.getReconsumeTimes() + " " + message.getProperty(MessageConst.PROPERTY_POP_CK));
                }
            }
            seen.put("messages", new ArrayList<>(messages));
            return seen;
        }

        /** The number of polls that wait, or the code of a refusal below 0. */
        int polls(int queueId) throws Exception {
            PollingInfoRequestHeader header = new PollingInfoRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(queueId);
            RemotingCommand answer = ask(RequestCode.POLLING_INFO, header);
            PollingInfoResponseHeader fields =
                (PollingInfoResponseHeader) answer.decodeCommandCustomHeader(PollingInfoResponseHeader.class);
            return answer.getCode() == ResponseCode.SUCCESS ? fields.getPollingNum() : -answer.getCode();
        }
    }

    /** A group looks before its first pop, behind what it has popped, and when a message has come again. */
    private static Object looks(Clients clients, JSONObject args) throws Exception {
        String topic = args.getString("topic");
        String group = args.getString("group");
        int all = PopMember.ALL_QUEUES;
        TopicOps.create(clients, topic, 2);
        PopWork.send(clients, topic, 10, "TagA");
        PopMember member = new PopMember(clients, topic, group);
        Looker looker = new Looker(clients, topic, group);
        double seconds = args.getDoubleValue("waitSeconds");
        Map<String, Object> seen = new LinkedHashMap<>();
        Clients.await(seconds, () -> isLeft(looker, 10));
        seen.put("all", looker.peek(all, 32));
        seen.put("all again", looker.peek(all, 32));
        List<Long> popped = new ArrayList<>();
        for (MessageExt message : member.pop(0, 3, args.getLongValue("invisibleMillis"), 0, "*")) {
            popped.add(message.getQueueOffset());
        }
        seen.put("popped", popped);
        seen.put("behind them", looker.peek(0, 32));
        seen.put("two of a queue", looker.peek(1, 2));
        seen.put("none", looker.peek(all, 0));
        seen.put("a queue beyond the last", looker.peek(2, 32));
        seen.put("an unknown topic", new Looker(clients, "NoTopic", group).peek(all, 32));
        seen.put("polls", List.of(looker.polls(all), looker.polls(1), looker.polls(2)));
        Clients.await(seconds, () -> isLeft(looker, 10));
        seen.put("come again", looker.peek(all, 32));
        return seen;
    }

    private static boolean isLeft(Looker looker, long count) {
        try {
            return looker.peek(PopMember.ALL_QUEUES, 32).get("rest").equals(count);
        } catch (Exception notYet) {
            return false;
        }
    }

    private PopLookScenarios() {
    }
}
