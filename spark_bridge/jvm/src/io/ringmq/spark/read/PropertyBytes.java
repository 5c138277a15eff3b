package io.ringmq.spark.read;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.unsafe.Platform;

/**
 * Looks up a message's properties, {@code name 0x01 value 0x02 ...}, without decoding them. Of a name that occurs twice the
 * last value counts, and an empty value counts as none, as in RocketMQ's {@code string2messageProperties}.
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

    /** Where the last found value begins, and its length. */
    long value;

    int valueLength;

    /** A name as {@link #find} wants it: with the byte that ends it. */
    private static byte[] name(String text) {
        return (text + (char) NAME_END).getBytes(StandardCharsets.US_ASCII);
    }

    /** Looks for a name; true when it has a value. */
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
            return false; // names have four letters at least
        }
        for (int i = 4; i < name.length; i++) {
            if (Platform.getByte(null, at + i) != name[i]) {
                return false;
            }
        }
        return true;
    }

    /** The next byte that ends a pair, {@code end} when there is none; eight bytes at a time. */
    private static long pairEnd(long from, long end) {
        long at = from;
        while (end - at >= 8) {
            long word = Memory.littleEndian64(at) ^ PAIR_ENDS;
            long found = word - LOW_BITS & ~word & HIGH_BITS; // its lowest bit is that of the first byte that is 0
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

    /** All of them, in the order of their first occurrence. */
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
