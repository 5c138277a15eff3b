package io.ringmq.spark.store;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * The watermark page of the owner of a store: the Java twin of {@code ringmq.ipc.watermark}, which documents the bytes.
 *
 * <p>The page counts only if a process holds the store's lock and the page names the same store.
 */
final class Watermarks {
    private static final Path SHARED_MEMORY = Path.of("/dev/shm");
    private static final String NAME_FILE = "ringmq.shm";
    private static final Pattern SECRET = Pattern.compile("[0-9a-f]{24}");
    private static final Path LOCKS = Path.of("/proc/locks");
    private static final int LOOKS_MAX = 4; // a lock released between two reads of the list hides others
    private static final long MAGIC = 0x5245544157514D52L;
    private static final int CONFIRM_FLUSHED = 1;
    private static final int CONFIRM_LIMITED = 2;
    private static final int USED_BYTES = 584;
    private static final int KIND_FIELD = 1;
    private static final int INODE_FIELD = 5; // "1: OFDLCK ADVISORY WRITE -1 08:01:1234 0 0"
    private static final String OWN_LOCK = "OFDLCK";

    /** Owner of the lock of a store. */
    enum Owner {
        NONE,
        RINGMQ,
        STOCK
    }

    /** First log offset that is not readable yet. */
    final long confirmOffset;

    /** All records below this log offset are in their queues. */
    final long dispatchedOffset;

    /** First log offset that retention has left. */
    final long minOffset;

    private Watermarks(ByteBuffer page) {
        int policy = page.getInt(12);
        long local = (policy & CONFIRM_FLUSHED) != 0 ? page.getLong(128) : page.getLong(64);
        long limit = page.getLong(576); // -1, the largest unsigned number, means no limit
        boolean limited = (policy & CONFIRM_LIMITED) != 0 && Long.compareUnsigned(limit, local) < 0;
        dispatchedOffset = page.getLong(192);
        confirmOffset = Math.max(limited ? limit : local, dispatchedOffset); // readable records stay readable
        minOffset = page.getLong(256);
    }

    /** Returns the page of the live owner, null without one. */
    static Watermarks read(Path root) throws IOException {
        long device = number(root, "unix:dev");
        long inode = number(root, "unix:ino");
        byte[] bytes;
        try {
            bytes = Files.readAllBytes(page(root, String.format("ringmq-%x-%x", device, inode)));
        } catch (NoSuchFileException none) {
            return null;
        }
        ByteBuffer page = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
        boolean isOfStore = bytes.length >= USED_BYTES
                && page.getLong(0) == MAGIC
                && page.getLong(32) == device
                && page.getLong(40) == inode;
        return isOfStore && ownerOf(root) == Owner.RINGMQ ? new Watermarks(page) : null;
    }

    /**
     * Returns the path of the page.
     *
     * <p>The file {@code ringmq.shm} of the store has a part of the name that other users cannot foresee. A broker of
     * an earlier version has a name without it. Its page belongs to the owner of the store, and is newer than one that
     * a killed broker of this version left.
     */
    private static Path page(Path root, String plain) throws IOException {
        Path old = SHARED_MEMORY.resolve(plain + "-watermarks");
        String secret;
        try {
            secret = Files.readString(root.resolve(NAME_FILE), StandardCharsets.ISO_8859_1).trim();
        } catch (NoSuchFileException none) {
            return old;
        }
        if (!SECRET.matcher(secret).matches()) {
            return old;
        }
        Path named = SHARED_MEMORY.resolve(plain + "-" + secret + "-watermarks");
        boolean isOld = madeAt(old) > madeAt(named) && number(old, "unix:uid") == number(root, "unix:uid");
        return isOld ? old : named;
    }

    /** Returns when a segment was made in ns, -1 without one. Stores through a mapping leave this time as it is. */
    private static long madeAt(Path segment) throws IOException {
        try {
            return ((FileTime) Files.getAttribute(segment, "unix:ctime")).to(TimeUnit.NANOSECONDS);
        } catch (NoSuchFileException none) {
            return -1;
        }
    }

    /**
     * Returns the owner of the store.
     *
     * <p>A stock broker takes another kind of lock than RingMQ. Beside that lock the page is one that a killed RingMQ
     * left. The method reads the kernel's list of locks: Java can only try to take a lock, and a broker that starts at
     * that moment would find its store locked. Devices are not compared, because stacked file systems show other ones
     * here.
     */
    static Owner ownerOf(Path root) throws IOException {
        String inode;
        try {
            inode = ":" + number(root.resolve("lock"), "unix:ino");
        } catch (NoSuchFileException none) {
            return Owner.NONE;
        }
        Owner owner = Owner.NONE;
        for (int look = 0; look < LOOKS_MAX && owner == Owner.NONE; look++) {
            owner = listedOwner(inode);
        }
        return owner;
    }

    private static Owner listedOwner(String inode) throws IOException {
        for (String line : Files.readString(LOCKS, StandardCharsets.US_ASCII).split("\n")) {
            String[] fields = line.trim().split("\\s+");
            if (fields.length > INODE_FIELD && !"->".equals(fields[1]) && fields[INODE_FIELD].endsWith(inode)) {
                return OWN_LOCK.equals(fields[KIND_FIELD]) ? Owner.RINGMQ : Owner.STOCK;
            }
        }
        return Owner.NONE;
    }

    private static long number(Path path, String attribute) throws IOException {
        return ((Number) Files.getAttribute(path, attribute)).longValue();
    }
}
