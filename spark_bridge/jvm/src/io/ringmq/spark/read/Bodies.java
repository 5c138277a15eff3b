package io.ringmq.spark.read;

import com.github.luben.zstd.ZstdInputStreamNoFinalizer;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.zip.InflaterInputStream;
import net.jpountz.lz4.LZ4FrameInputStream;

/** Decompresses bodies by the compression type in their sysFlag. Old clients write type 0 and mean zlib. */
final class Bodies {
    private static final int PLAIN_BYTES_MAX = 64 << 20; // clients send at most 4 MiB; more is a bomb

    private Bodies() {}

    /** Returns the body as its sender gave it. Raises {@link BrokenRecordException} with the reason. */
    static byte[] decompress(RecordDecoder record) {
        int type = record.sysFlag >> 8 & 7;
        byte[] packed = Memory.bytes(record.body, record.bodyLength);
        try (InputStream stream = stream(type, new ByteArrayInputStream(packed))) {
            byte[] plain = stream.readNBytes(PLAIN_BYTES_MAX);
            if (stream.read() >= 0) {
                throw new IOException("more than " + PLAIN_BYTES_MAX + " bytes when decompressed");
            }
            return plain;
        } catch (IOException | RuntimeException failed) { // lz4 throws unchecked exceptions for a bad frame header
            throw new BrokenRecordException("the body cannot be decompressed (" + failed.getMessage() + ")");
        }
    }

    private static InputStream stream(int type, InputStream compressed) throws IOException {
        switch (type) {
            case 0:
            case 3:
                return new InflaterInputStream(compressed);
            case 1:
                return new LZ4FrameInputStream(compressed);
            case 2:
                return new ZstdInputStreamNoFinalizer(compressed);
            default:
                throw new IOException("unknown compression type " + type);
        }
    }
}
