package io.ringmq.spark.read;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.unsafe.Platform;

/**
 * Finds properties in {@code name 0x01 value 0x02 ...} without decoding the rest.
 *
 * <p>As in RocketMQ's {@code string2messageProperties}, the last value of a name counts, and an empty value counts as
 * absent.
 */
final class PropertyBytes {
    static final byte[] KEYS = name("KEYS");
    static final byte[] TAGS = name("TAGS");
    static final byte[] UNIQ_KEY = name("UNIQ_KEY");

    private static final int NAME_END = 0x01;
    private static final int PAIR_END = 0x02;
    private static final long LOW_BITS = 0x0101010101010101L;
    private static final long HIGH_BITS = 0x8080808080808080L;
    private static final long PAIR_ENDS = LOW_BITS * PAIR_END;

    /** Offset and length of the value found last. */
    long value;

    int valueLength;

    /** Returns a name for {@link #find}, with its end byte. */
    private static byte[] name(String text) {
        return (text + (char) NAME_END).getBytes(StandardCharsets.US_ASCII);
    }

    /** Finds a name. Returns true if it has a value. */
    boolean find(byte[] name, long properties, int length) {
        long at = properties;
        long end = properties + length;
        valueLength = 0;
        while (at < end) {
            long pairEnd = pairEnd(at, end);
            long valueAt = at + name.length;
            if (valueAt < pairEnd && startsWith(at, name)) {
                value = valueAt;
                valueLength = (int) (pairEnd - valueAt);
            }
            at = pairEnd + 1;
        }
        return valueLength > 0;
    }

    private static boolean startsWith(long at, byte[] name) {
        if (Platform.getInt(null, at) != Platform.getInt(name, Platform.BYTE_ARRAY_OFFSET)) {
            return false; // names have at least four letters
        }
        for (int i = 4; i < name.length; i++) {
            if (Platform.getByte(null, at + i) != name[i]) {
                return false;
            }
        }
        return true;
    }

    /** Returns the next byte that ends a pair, else {@code end}. Compares eight bytes at a time. */
    private static long pairEnd(long from, long end) {
        long at = from;
        while (end - at >= 8) {
            long word = Memory.littleEndian64(at) ^ PAIR_ENDS;
            long found = word - LOW_BITS & ~word & HIGH_BITS; // the lowest bit set marks the first zero byte
            if (found != 0) {
                return at + (Long.numberOfTrailingZeros(found) >>> 3);
            }
            at += 8;
        }
        while (at < end && Platform.getByte(null, at) != PAIR_END) {
            at++;
        }
        return at;
    }

    /** Returns all properties in the order of their first occurrence. */
    static Map<String, String> all(long properties, int length) {
        Map<String, String> found = new LinkedHashMap<>();
        String text = new String(Memory.bytes(properties, length), StandardCharsets.UTF_8);
        int at = 0;
        while (at < text.length()) {
            int pairEnd = text.indexOf(PAIR_END, at);
            pairEnd = pairEnd < 0 ? text.length() : pairEnd;
            int nameEnd = text.indexOf(NAME_END, at);
            if (nameEnd > at && nameEnd + 1 < pairEnd) {
                found.put(text.substring(at, nameEnd), text.substring(nameEnd + 1, pairEnd));
            }
            at = pairEnd + 1;
        }
        return found;
    }
}
