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
 * The files of one folder that are named by the offset of their first byte (20 digits) and hold {@code fileBytes} each.
 * Reads a few bytes at a time with positional reads; the log itself is mapped by {@link MappedFile} instead.
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

    /** Starts of the files in a folder, ascending; foreign names are passed over, a missing folder has none. */
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

    /** First byte that is there, 0 without files. */
    long minOffset() {
        return starts.isEmpty() ? 0 : starts.get(0);
    }

    /** Start of the file with this offset, -1 when there is none. */
    long startOf(long offset) {
        int found = Collections.binarySearch(starts, offset);
        int index = found >= 0 ? found : -found - 2;
        return index >= 0 && offset < starts.get(index) + fileBytes ? starts.get(index) : -1;
    }

    /** Reads up to {@code into.remaining()} bytes of one file; fewer at its end, none where no file is. Flips the buffer. */
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
        } catch (NoSuchFileException gone) { // retention took it since the folder was listed
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
