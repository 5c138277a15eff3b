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
 * A log file mapped for reading, shared by all tasks of this JVM that read it, with a shared lock on it for as long as one
 * of them does: retention passes locked files by.
 *
 * <p>Java knows POSIX locks only, and the kernel drops those of a file when the process closes any descriptor of it. So
 * there is one channel per file and JVM, counted, and nothing else here may open a log file. Should something else in the
 * JVM close the file, only the lock is lost: a mapped file keeps its bytes even when it is unlinked, and a log file never
 * shrinks, so that what is mapped is always readable.
 *
 * <p>Files are told apart by device and inode: a store that was deleted and made again is another one.
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
            if (Files.notExists(path)) { // a cleaner was faster and unlinked it before the lock was ours
                throw new NoSuchFileException(path.toString());
            }
            if (size > Integer.MAX_VALUE) {
                throw new IOException(path + " has " + size + " bytes; log files are smaller than 2 GiB");
            }
            this.bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, size);
            this.address = ADDRESS.getLong(bytes);
        } catch (IllegalAccessException closed) {
            channel.close();
            throw new IOException("java.nio is not open to this code; start Spark by its own launcher", closed);
        } catch (IOException failed) {
            channel.close();
            throw failed;
        }
    }

    /** Opens the file or shares it. Each call wants one {@link #release}. Raises NoSuchFileException. */
    public static MappedFile acquire(Path path) throws IOException {
        synchronized (OPEN) {
            Object key = keyOf(path);
            MappedFile file = OPEN.get(key);
            if (file == null) {
                file = new MappedFile(path, key);
                if (!key.equals(keyOf(path))) {
                    file.channel.close();
                    throw new IOException(path + " was replaced while it was opened");
                }
                OPEN.put(key, file);
            }
            file.users++;
            return file;
        }
    }

    /**
     * Gives it back; the last user's release unlocks and unmaps.
     *
     * @param unmap false when another thread may still be reading values: then the garbage collector unmaps, once no
     *     reader can be reached any more
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

    /** Where its first byte lies in memory. */
    public long address() {
        return address;
    }

    /** Bytes in it. */
    public int size() {
        return bytes.capacity();
    }

    @Override
    public String toString() {
        return path.toString();
    }

    private void lockShared() throws IOException {
        try {
            channel.lock(0, 1, true); // byte 0, as the Python source and retention do
        } catch (OverlappingFileLockException held) {
            return; // another class loader's copy of this class holds it for this process already
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
