import java.io.File;
import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The other side of a comparison: topics of a stock broker as a Spark table, every row fetched by {@code LitePullFeed}.
 * Options: namesrv, queues (topic:queueId, comma separated), tasks, classpath (of the stock client and the feed),
 * logs (folder), logback (file). The client lives in a class loader of its own: its libraries are not Spark's.
 */
public final class StockSource implements TableProvider {
    private static final StructType SCHEMA = new StructType()
        .add("key", DataTypes.BinaryType).add("value", DataTypes.BinaryType).add("topic", DataTypes.StringType)
        .add("partition", DataTypes.IntegerType).add("offset", DataTypes.LongType)
        .add("timestamp", DataTypes.TimestampType).add("timestampType", DataTypes.IntegerType);
    private static final int LOG_APPEND_TIME = 1;

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new Topics(new CaseInsensitiveStringMap(properties));
    }

    private record Topics(CaseInsensitiveStringMap options) implements Table, SupportsRead, Scan, Batch {
        @Override
        public String name() {
            return "stock " + options.get("namesrv");
        }

        @Override
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public StructType readSchema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap unused) {
            return () -> this;
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        /** Queue i belongs to task i modulo tasks. */
        @Override
        public InputPartition[] planInputPartitions() {
            String[] queues = options.get("queues").split(",");
            Share[] shares = new Share[options.getInt("tasks", 2)];
            for (int task = 0; task < shares.length; task++) {
                ArrayList<String> mine = new ArrayList<>();
                for (int queue = task; queue < queues.length; queue += shares.length) {
                    mine.add(queues[queue]);
                }
                shares[task] = new Share(mine);
            }
            return shares;
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Feeds(options.get("namesrv"), options.get("classpath"), options.get("logs"),
                options.get("logback"));
        }
    }

    private record Share(ArrayList<String> queues) implements InputPartition { }

    private record Feeds(String namesrv, String classpath, String logs, String logback)
        implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            System.setProperty("rocketmq.client.logRoot", logs);
            System.setProperty("rmq.logback.configurationFile", logback);
            System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
            try {
                return new Rows(ClientLoader.of(classpath), namesrv, ((Share) partition).queues());
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException("the stock client did not start", error);
            }
        }
    }

    /** One loader for all tasks of the process: the client's classes are loaded, and compiled, once. */
    private static final class ClientLoader {
        private static ClassLoader loader;

        static synchronized ClassLoader of(String classpath) {
            if (loader == null) {
                List<URL> places = new ArrayList<>();
                for (String entry : classpath.split(File.pathSeparator)) {
                    try {
                        places.add(new File(entry).toURI().toURL());
                    } catch (MalformedURLException error) {
                        throw new IllegalArgumentException(entry, error);
                    }
                }
                loader = new URLClassLoader(places.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
            }
            return loader;
        }
    }

    private static final class Rows implements PartitionReader<InternalRow> {
        private final Supplier<List<Object[]>> feed;
        private Iterator<Object[]> messages = List.<Object[]>of().iterator();

        @SuppressWarnings("unchecked")
        Rows(ClassLoader loader, String namesrv, Collection<String> queues) throws ReflectiveOperationException {
            feed = (Supplier<List<Object[]>>) loader.loadClass("LitePullFeed")
                .getConstructor(String.class, Collection.class).newInstance(namesrv, queues);
        }

        @Override
        public boolean next() {
            while (!messages.hasNext()) {
                List<Object[]> more = feed.get();
                if (more == null) {
                    return false;
                }
                messages = more.iterator();
            }
            return true;
        }

        @Override
        public InternalRow get() {
            Object[] message = messages.next();
            return new GenericInternalRow(new Object[] {
                message[0], message[1], UTF8String.fromString((String) message[2]), message[3], message[4],
                (Long) message[5] * 1000, LOG_APPEND_TIME});
        }

        @Override
        public void close() throws IOException {
            try {
                ((AutoCloseable) feed).close();
            } catch (Exception error) {
                throw new IOException("the stock client did not stop", error);
            }
        }
    }
}
