package io.ringmq.spark.read;

import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Big-endian numbers and bytes at raw addresses, unchecked.
 *
 * <p>Callers have validated lengths with {@link RecordDecoder}, so the bytes lie inside the mapped file.
 */
final class Memory {
    private static final int CACHE_LINE_BYTES = 64;
    private static final boolean SWAP = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    private Memory() {}

    static int int32(long address) {
        int value = Platform.getInt(null, address);
        return SWAP ? Integer.reverseBytes(value) : value;
    }

    static long int64(long address) {
        long value = Platform.getLong(null, address);
        return SWAP ? Long.reverseBytes(value) : value;
    }

    static long littleEndian64(long address) {
        long value = Platform.getLong(null, address);
        return SWAP ? value : Long.reverseBytes(value);
    }

    static int uint8(long address) {
        return Platform.getByte(null, address) & 0xFF;
    }

    static int uint16(long address) {
        return uint8(address) << 8 | uint8(address + 1);
    }

    static byte[] bytes(long address, int length) {
        byte[] copy = new byte[length];
        Platform.copyMemory(null, address, copy, Platform.BYTE_ARRAY_OFFSET, length);
        return copy;
    }

    /**
     * Reads a byte of each cache line in [from, end) to prefetch it. Callers must use the result, or the compiler
     * removes the reads.
     */
    static int touch(long from, long end) {
        int all = 0;
        for (long at = from; at < end; at += CACHE_LINE_BYTES) {
            all ^= Platform.getByte(null, at);
        }
        return all;
    }

    /** Returns text. Bytes that are not UTF-8 are replaced, as in RocketMQ's clients. */
    static UTF8String text(long address, int length) {
        byte[] copy = bytes(address, length);
        for (byte b : copy) {
            if (b < 0) {
                return UTF8String.fromString(new String(copy, StandardCharsets.UTF_8));
            }
        }
        return UTF8String.fromBytes(copy);
    }
}
