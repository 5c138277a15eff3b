package io.ringmq.spark.store;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * The files of one folder, each named by the offset of its first byte (20 digits) and of {@code fileBytes} bytes.
 *
 * <p>Reads a few bytes at a time with positional reads. {@link MappedFile} maps the log.
 */
final class NumberedFiles implements Closeable {
    private static final int NAME_DIGITS = 20;

    final Path folder;
    final long fileBytes;
    final List<Long> starts;
    private FileChannel channel;
    private long channelStart = -1;

    NumberedFiles(Path folder, long fileBytes) throws IOException {
        this.folder = folder;
        this.fileBytes = fileBytes;
        this.starts = starts(folder);
    }

    /** Returns the starts of the files in a folder, ascending. Foreign names are skipped, a missing folder has none. */
    static List<Long> starts(Path folder) throws IOException {
        List<Long> starts = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(folder)) {
            for (Path entry : entries) {
                String name = entry.getFileName().toString();
                if (name.length() == NAME_DIGITS && name.chars().allMatch(c -> c >= '0' && c <= '9')) {
                    starts.add(Long.parseLong(name));
                }
            }
        } catch (NoSuchFileException | NotDirectoryException gone) {
            return starts;
        }
        Collections.sort(starts);
        return starts;
    }

    static String fileName(long start) {
        return String.format("%020d", start);
    }

    Path path(long start) {
        return folder.resolve(fileName(start));
    }

    /** Returns the first existing byte, 0 without files. */
    long minOffset() {
        return starts.isEmpty() ? 0 : starts.get(0);
    }

    /** Returns the start of the file with this offset, -1 without such a file. */
    long startOf(long offset) {
        int found = Collections.binarySearch(starts, offset);
        int index = found >= 0 ? found : -found - 2;
        return index >= 0 && offset < starts.get(index) + fileBytes ? starts.get(index) : -1;
    }

    /**
     * Reads up to {@code into.remaining()} bytes of one file: fewer at its end, none without a file. Flips the buffer.
     */
    void read(long offset, ByteBuffer into) throws IOException {
        long start = startOf(offset);
        if (start >= 0 && open(start)) {
            long at = offset - start;
            while (into.hasRemaining()) {
                int count = channel.read(into, at);
                if (count <= 0) {
                    break;
                }
                at += count;
            }
        }
        into.flip();
    }

    private boolean open(long start) throws IOException {
        if (start == channelStart) {
            return true;
        }
        close();
        try {
            channel = FileChannel.open(path(start), StandardOpenOption.READ);
        } catch (NoSuchFileException gone) { // retention deleted it after the listing
            return false;
        }
        channelStart = start;
        return true;
    }

    @Override
    public void close() throws IOException {
        channelStart = -1;
        if (channel != null) {
            channel.close();
            channel = null;
        }
    }
}
