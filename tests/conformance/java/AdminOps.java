import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin commands in this JVM, one at a time, with all that they print. */
final class AdminOps extends MQAdminStartup {
    private static final Object ONE_AT_A_TIME = new Object();

    static void register() {
        StockClient.register("mqadmin", AdminOps::mqadmin);
    }

    private static Object mqadmin(Clients clients, JSONObject args) throws Exception {
        return run(args.getJSONArray("command").toArray(new String[0]));
    }

    /** Runs one command, and returns what it prints. */
    static String run(String... command) throws Exception {
        synchronized (ONE_AT_A_TIME) {
            PrintStream out = System.out;
            PrintStream err = System.err;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, "UTF-8");
            System.setOut(capture);
            System.setErr(capture);
            try {
                SUB_COMMANDS.clear(); // some commands keep a client that can be started only once
                MQAdminStartup.main0(command, null);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            return printed.toString("UTF-8");
        }
    }

    private AdminOps() {
    }
}
