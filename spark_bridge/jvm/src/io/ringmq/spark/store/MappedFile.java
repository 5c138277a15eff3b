package io.ringmq.spark.store;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.Buffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.storage.StorageUtils;

/**
 * A log file, mapped for reading and shared by all tasks of this JVM.
 *
 * <p>A shared lock stands on the file while a task reads it, and retention skips locked files.
 *
 * <p>Java has POSIX locks only. The kernel drops those of a file when the process closes any descriptor of it. So there
 * is one counted channel per file and JVM, and no other code here may open a log file. If other code in the JVM closes
 * the file, only the lock is lost. The mapping stays readable: an unlinked file keeps its bytes, and a log file never
 * shrinks.
 *
 * <p>The key is device and inode, so a store that was deleted and created again has other files.
 */
public final class MappedFile {
    private static final Map<Object, MappedFile> OPEN = new HashMap<>();
    private static final Field ADDRESS = addressField();

    private final Path path;
    private final Object key;
    private final FileChannel channel;
    private final MappedByteBuffer bytes;
    private final long address;
    private int users;
    private boolean leftToCollector;

    private MappedFile(Path path, Object key) throws IOException {
        this.path = path;
        this.key = key;
        this.channel = FileChannel.open(path, StandardOpenOption.READ);
        try {
            lockShared();
            long size = channel.size();
            if (Files.notExists(path)) { // retention unlinked the file before the lock was taken
                throw new NoSuchFileException(path.toString());
            }
            if (size > Integer.MAX_VALUE) {
                throw new IOException(path + " has " + size + " bytes; a log file must be smaller than 2 GiB");
            }
            this.bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, size);
            this.address = ADDRESS.getLong(bytes);
        } catch (IllegalAccessException closed) {
            channel.close();
            throw new IOException("java.nio is not open to ringmq-jvm: start Spark by spark-submit or pyspark, or add"
                    + " --add-opens=java.base/java.nio=ALL-UNNAMED", closed);
        } catch (IOException failed) {
            channel.close();
            throw failed;
        }
    }

    /** Opens or shares the file. Each call needs one {@link #release}. Raises NoSuchFileException. */
    public static MappedFile acquire(Path path) throws IOException {
        synchronized (OPEN) {
            Object key = keyOf(path);
            MappedFile file = OPEN.get(key);
            if (file == null) {
                file = new MappedFile(path, key);
                if (!key.equals(keyOf(path))) {
                    file.channel.close();
                    throw new IOException(path + " was replaced during the open; run the read again");
                }
                OPEN.put(key, file);
            }
            file.users++;
            return file;
        }
    }

    /**
     * Releases the file. The last release unlocks and unmaps it.
     *
     * @param unmap false if another thread may still read values: the garbage collector then unmaps the file, when no
     *     reader is reachable
     */
    public void release(boolean unmap) throws IOException {
        synchronized (OPEN) {
            leftToCollector |= !unmap;
            if (--users > 0) {
                return;
            }
            OPEN.remove(key);
            channel.close();
        }
        if (!leftToCollector) {
            StorageUtils.dispose(bytes);
        }
    }

    /** Returns the address of the first byte. */
    public long address() {
        return address;
    }

    /** Returns the size in bytes. */
    public int size() {
        return bytes.capacity();
    }

    @Override
    public String toString() {
        return path.toString();
    }

    private void lockShared() throws IOException {
        try {
            channel.lock(0, 1, true); // byte 0, as in the Python source and in retention
        } catch (OverlappingFileLockException held) {
            return; // another class loader's copy of this class holds the lock for this process
        }
    }

    private static Object keyOf(Path path) throws IOException {
        return Files.readAttributes(path, BasicFileAttributes.class).fileKey();
    }

    private static Field addressField() {
        try {
            Field field = Buffer.class.getDeclaredField("address");
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException missing) {
            throw new IllegalStateException("this Java has no java.nio.Buffer.address", missing);
        }
    }
}
