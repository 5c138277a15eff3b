package io.ringmq.spark.store;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/**
 * A store on this host: its folders and file sizes. A store does not contain its configuration, so the first file with
 * data gives the size.
 */
public final class StoreFolder implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final String LOG = "commitlog";
    private static final String QUEUES = "consumequeue";
    private static final String BATCH_QUEUES = "batchconsumequeue";
    private static final String DEFAULT_BROKER_NAME = "DEFAULT_BROKER";
    private static final String FORMAT_MARKER = "ringmq.format";
    private static final int FORMAT = 1; // of store/store_format.py
    private static final int QUEUE_DEPTH = 2; // topic, queue id
    private static final long DISPATCH_WAIT_NS = 2_000_000_000L;
    private static final long DISPATCH_LOOK_NS = 500_000; // the interval of dispatch
    private static final long START_WAIT_NS = 5_000_000_000L;
    private static final long START_LOOK_NS = 50_000_000;

    private final String root;
    private final String identity;
    private volatile long logFileBytes; // of the first file; 0 = no file yet, as in the next two
    private volatile long queueFileBytes;
    private volatile long batchFileBytes;

    /** Name of a queue. {@code isBatch} is unknown, and false, for a queue without a folder. */
    public record QueueName(String topic, int queueId, boolean isBatch) {}

    /** Opens the store. Raises IOException if this host has no log there, or a newer RingMQ has written it. */
    public StoreFolder(Path root) throws IOException {
        this.root = root.toAbsolutePath().toString();
        if (!Files.isDirectory(root.resolve(LOG))) {
            throw new NoSuchFileException(
                    root.resolve(LOG).toString(), null, "no such folder on this host; check option store");
        }
        checkFormat(root);
        this.identity = identity();
        lookForSizes();
    }

    /**
     * Finds sizes that are still unknown, before each read: a DataFrame may be older than the first message of its
     * store.
     */
    private void lookForSizes() throws IOException {
        logFileBytes = logFileBytes > 0 ? logFileBytes : firstSize(root().resolve(LOG), 0);
        queueFileBytes = queueFileBytes > 0 ? queueFileBytes : firstSize(root().resolve(QUEUES), QUEUE_DEPTH);
        batchFileBytes = batchFileBytes > 0 ? batchFileBytes : firstSize(root().resolve(BATCH_QUEUES), QUEUE_DEPTH);
    }

    private static void checkFormat(Path root) throws IOException {
        String text;
        try {
            text = Files.readString(root.resolve(FORMAT_MARKER)).strip();
        } catch (NoSuchFileException absent) {
            return; // a store of a stock broker
        }
        String[] words = text.split(" ", 2);
        if (!words[0].matches("[0-9]{1,9}")) {
            throw new IOException(root.resolve(FORMAT_MARKER) + " is damaged: '" + words[0] + "' is no format number");
        }
        if (Integer.parseInt(words[0]) > FORMAT) {
            throw new IOException("store " + root + " has format " + words[0] + ", written by "
                    + (words.length > 1 ? words[1] : "a newer RingMQ") + "; this ringmq-jvm reads formats up to "
                    + FORMAT + ", use a newer one");
        }
    }

    /** Returns the folder. */
    public Path root() {
        return Path.of(root);
    }

    /** Returns the bytes of one log file, 0 for an empty log. */
    public long logFileBytes() {
        return logFileBytes;
    }

    /** Returns false if the log was deleted and created again since the constructor. */
    public boolean isSame() throws IOException {
        return identity.equals(identity());
    }

    /** Returns the path of the log file with this offset. */
    public Path logFile(long logOffset) {
        return root().resolve(LOG).resolve(NumberedFiles.fileName(logFileStart(logOffset)));
    }

    /** Returns the offset of the first byte of the log file with this offset. */
    public long logFileStart(long logOffset) {
        return logOffset - logOffset % logFileBytes;
    }

    /**
     * Returns the readable range of the log.
     *
     * <p>A live RingMQ publishes the end. The queues have it for a running stock broker, and for a store that was
     * stopped cleanly. Raises IOException for a store without owner that was not stopped cleanly: only recovery finds
     * its end, which the Python source does. Raises IOException also if a RingMQ is starting.
     */
    public Readable readable() throws IOException {
        long giveUpAt = System.nanoTime() + START_WAIT_NS;
        Watermarks marks = dispatched();
        Watermarks.Owner owner = Watermarks.ownerOf(root());
        while (marks == null && owner == Watermarks.Owner.RINGMQ) {
            if (System.nanoTime() >= giveUpAt) {
                throw new IOException("store " + root + ": its broker is starting (or newer than this reader, or its"
                        + " /dev/shm is not this host's): the readable end is known when it serves; run the read then");
            }
            LockSupport.parkNanos(START_LOOK_NS);
            marks = dispatched();
            owner = Watermarks.ownerOf(root());
        }
        lookForSizes();
        List<Long> starts = NumberedFiles.starts(root().resolve(LOG));
        long first = starts.isEmpty() ? 0 : starts.get(0);
        if (marks != null) {
            return new Readable(Math.max(first, marks.minOffset), marks.dispatchedOffset);
        }
        boolean isClean = !Files.exists(root().resolve("abort")) && !Files.exists(root().resolve("ringmq.failed"));
        if (!isClean && owner == Watermarks.Owner.NONE) {
            throw new IOException("store " + root + " has no owner and was not stopped cleanly, so ringmq-jvm cannot"
                    + " find its end; use format ringmq, or start the broker");
        }
        return new Readable(first, Long.MAX_VALUE);
    }

    /**
     * Log offsets [{@code begin}, {@code end}) that may be read.
     *
     * @param begin first existing offset
     * @param end first offset that may not be read yet, MAX_VALUE if the queues have the end
     */
    public record Readable(long begin, long end) {}

    /**
     * Returns the watermarks of the owner, once each record acknowledged by now is in its queue. Returns null without
     * an owner.
     */
    private Watermarks dispatched() throws IOException {
        Watermarks marks = Watermarks.read(root());
        long confirmed = marks == null ? 0 : marks.confirmOffset;
        long giveUpAt = System.nanoTime() + DISPATCH_WAIT_NS;
        while (marks != null
                && marks.dispatchedOffset < Math.min(confirmed, marks.confirmOffset) // it may fall on a slave
                && System.nanoTime() < giveUpAt) {
            LockSupport.parkNanos(DISPATCH_LOOK_NS);
            marks = Watermarks.read(root());
        }
        return marks;
    }

    /** Returns the name that the broker left in the store, else the default of stock. */
    public String brokerName() throws IOException {
        Path file = root().resolve("config").resolve("brokerName");
        String name = Files.isRegularFile(file) ? Files.readString(file).strip() : "";
        return name.isEmpty() ? DEFAULT_BROKER_NAME : name;
    }

    /**
     * Returns all queues with a folder, of both kinds, and all configured queues.
     *
     * @param withOwn true: include topics named after broker and cluster that have no folder
     */
    public List<QueueName> queueNames(boolean withOwn) throws IOException {
        List<QueueName> names = foundNames();
        Set<String> found = names.stream().map(StoreFolder::label).collect(Collectors.toSet());
        ConfiguredQueues.list(root(), withOwn).stream()
                .filter(name -> !found.contains(label(name)))
                .forEach(names::add);
        return names;
    }

    private static String label(QueueName name) {
        return name.topic() + ":" + name.queueId();
    }

    private List<QueueName> foundNames() throws IOException {
        List<QueueName> names = new ArrayList<>();
        for (boolean isBatch : new boolean[] {false, true}) {
            for (Path topic : entries(root().resolve(isBatch ? BATCH_QUEUES : QUEUES))) {
                for (Path queue : entries(topic)) {
                    String id = queue.getFileName().toString();
                    if (!id.isEmpty() && id.length() < 10 && id.chars().allMatch(c -> c >= '0' && c <= '9')) {
                        names.add(new QueueName(topic.getFileName().toString(), Integer.parseInt(id), isBatch));
                    }
                }
            }
        }
        return names;
    }

    /** Opens the index of a queue. */
    public QueueIndex openQueue(String topic, int queueId, boolean isBatch) throws IOException {
        Path folder = root().resolve(isBatch ? BATCH_QUEUES : QUEUES).resolve(topic).resolve(String.valueOf(queueId));
        return new QueueIndex(new NumberedFiles(folder, isBatch ? batchFileBytes : queueFileBytes), isBatch);
    }

    private String identity() throws IOException {
        return String.valueOf(Files.readAttributes(root().resolve(LOG), BasicFileAttributes.class).fileKey());
    }

    private static List<Path> entries(Path folder) throws IOException {
        List<Path> found = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(folder)) {
            entries.forEach(found::add);
        } catch (NoSuchFileException | NotDirectoryException none) {
            return found;
        }
        return found;
    }

    private static long firstSize(Path folder, int depth) throws IOException {
        if (depth == 0) {
            for (long start : NumberedFiles.starts(folder)) {
                long size = Files.size(folder.resolve(NumberedFiles.fileName(start)));
                if (size > 0) {
                    return size;
                }
            }
            return 0;
        }
        for (Path entry : entries(folder)) {
            long size = firstSize(entry, depth - 1);
            if (size > 0) {
                return size;
            }
        }
        return 0;
    }
}
