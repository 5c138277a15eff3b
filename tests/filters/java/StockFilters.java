import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Compiles expressions from stdin with RocketMQ's own parser and evaluates them for sets of properties. */
public final class StockFilters {
    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values = new HashMap<>();

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }

    private static String text(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static char verdict(Expression compiled, Properties properties) {
        if (compiled == null) {
            return 'E';
        }
        try {
            Object value = compiled.evaluate(properties);
            return value == null ? 'N' : value == Boolean.TRUE ? 'T' : value == Boolean.FALSE ? 'F' : '?';
        } catch (Throwable e) {
            return 'X';
        }
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        for (int left = in.readInt(); left > 0; left--) {
            Expression compiled;
            try {
                compiled = SelectorParser.parse(text(in));
            } catch (Throwable e) {
                compiled = null;
            }
            for (int sets = in.readInt(); sets > 0; sets--) {
                Properties properties = new Properties();
                for (int pairs = in.readInt(); pairs > 0; pairs--) {
                    properties.values.put(text(in), text(in));
                }
                out.writeByte(verdict(compiled, properties));
            }
        }
        out.flush();
    }
}
