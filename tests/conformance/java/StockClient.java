import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Operations of the stock client. Reads one JSON object per line from stdin ({"id", "op", "namesrv", "args"}), runs the
 * operation on its own thread and writes one JSON line per answer ({"id", "result"} or {"id", "error"}). It reports
 * what the stock client saw; the tests decide whether that is right.
 */
public final class StockClient {
    /** One operation: what the stock client saw, as maps, lists, strings and numbers. */
    interface Operation {
        Object run(Clients clients, JSONObject args) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = new LinkedHashMap<>();

    static void register(String name, Operation operation) {
        OPERATIONS.put(name, operation);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        TopicOps.register();
        SendScenarios.register();
        PushScenarios.register();
        RetryScenarios.register();
        ReplyScenarios.register();
        OrderlyMember.register();
        GroupScenarios.register();
        PullScenarios.register();
        FilterScenarios.register();
        DelayScenarios.register();
        TransactionScenarios.register();
        TimerScenarios.register();
        QueryScenarios.register();
        AdminOps.register();
        ReplicationScenarios.register();
        SlaveReadScenarios.register();
        TakeOverScenarios.register();
        NamespaceScenarios.register();
        PopScenarios.register();
        PopPushScenarios.register();
        PopCaseScenarios.register();
        PopGroupScenarios.register();
        PopLookScenarios.register();
        PopOrderScenarios.register();
        PopRestartScenarios.register();
        PopWaitScenarios.register();
        PopShiftScenarios.register();
        PopLoadScenarios.register();
        PopNotificationScenarios.register();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject request = JSON.parseObject(line);
            Thread worker = new Thread(() -> answer(request, answers), request.getString("op"));
            worker.setDaemon(true);
            worker.start();
        }
        System.exit(0);
    }

    private static void answer(JSONObject request, PrintStream answers) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", request.get("id"));
        Clients clients = new Clients(request.getString("namesrv"));
        try {
            Operation operation = OPERATIONS.get(request.getString("op"));
            if (operation == null) {
                throw new IllegalArgumentException("no operation " + request.getString("op"));
            }
            JSONObject args = request.getJSONObject("args");
            answer.put("result", operation.run(clients, args == null ? new JSONObject() : args));
        } catch (Throwable failure) {
            StringWriter text = new StringWriter();
            failure.printStackTrace(new PrintWriter(text));
            answer.put("error", text.toString());
        }
        String line = JSON.toJSONString(answer, SerializerFeature.DisableCircularReferenceDetect);
        synchronized (answers) {
            answers.println(line);
        }
        clients.close(); // may take 3 s: the client's shutdown now and then waits for a thread of its own
    }

    private StockClient() {
    }
}
