#include "base/log_line.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static uint32_t process_style;

struct out {
    char *bytes;
    size_t length;
    size_t room;
};

static void put_byte(struct out *to, char byte)
{
    if (to->length < to->room)
        to->bytes[to->length++] = byte;
}

static void put(struct out *to, const char *text)
{
    for (; *text; text++)
        put_byte(to, *text);
}

static void put_padded(struct out *to, int64_t value, int digits)
{
    int64_t unit = 1;
    while (--digits)
        unit *= 10;
    for (; unit; unit /= 10)
        put_byte(to, (char)('0' + value / unit % 10));
}

/* YYYY-MM-DDTHH:MM:SS.mmmZ. gmtime_r takes a lock for the time zone. The calendar is the Gregorian one of Python's
 * datetime; years 1970..9999. */
static void put_time(struct out *to, int64_t time_ms)
{
    int64_t days = time_ms / 86400000, rest = time_ms % 86400000;
    int64_t from_march = days + 719468; /* days since 0000-03-01 */
    int64_t era = from_march / 146097, day_of_era = from_march % 146097;
    int64_t year = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    month = month < 10 ? month + 3 : month - 9;
    put_padded(to, era * 400 + year + (month <= 2), 4);
    put_byte(to, '-');
    put_padded(to, month, 2);
    put_byte(to, '-');
    put_padded(to, day, 2);
    put_byte(to, 'T');
    put_padded(to, rest / 3600000, 2);
    put_byte(to, ':');
    put_padded(to, rest / 60000 % 60, 2);
    put_byte(to, ':');
    put_padded(to, rest / 1000 % 60, 2);
    put_byte(to, '.');
    put_padded(to, rest % 1000, 3);
    put_byte(to, 'Z');
}

static const char *level_name(uint32_t level)
{
    if (level >= RMQ_LOG_CRITICAL)
        return "CRITICAL";
    if (level >= RMQ_LOG_ERROR)
        return "ERROR";
    if (level >= RMQ_LOG_WARNING)
        return "WARNING";
    return level >= RMQ_LOG_INFO ? "INFO" : "DEBUG";
}

static void put_priority(struct out *to, uint32_t level)
{
    char digit = level >= RMQ_LOG_CRITICAL ? '2' : level >= RMQ_LOG_ERROR ? '3' : level >= RMQ_LOG_WARNING ? '4' : '6';
    put_byte(to, '<');
    put_byte(to, level < RMQ_LOG_INFO ? '7' : digit);
    put_byte(to, '>');
}

static void put_hex(struct out *to, uint8_t byte)
{
    put_byte(to, "0123456789abcdef"[byte >> 4]);
    put_byte(to, "0123456789abcdef"[byte & 15]);
}

/* The character at `text` if it could drive a terminal or turn the text around it: a control character, a separator of
 * lines or paragraphs, or a control of the direction of writing (twin: remoting/printable.py). `size` gets its bytes.
 * 0 for all others. */
static uint32_t unprintable(const char *text, int *size)
{
    uint8_t byte = (uint8_t)text[0];
    *size = 1;
    if (byte < 0x20 || byte == 0x7f)
        return byte;
    if (byte != 0xc2 && byte != 0xd8 && byte != 0xe2)
        return 0;
    uint8_t second = (uint8_t)text[1];
    if ((second & 0xc0) != 0x80)
        return 0;
    *size = 2;
    uint32_t code = (byte & 0x1fu) << 6 | (second & 0x3fu);
    if (byte != 0xe2)
        return code < 0xa0 || code == 0x61c ? code : 0;
    uint8_t third = (uint8_t)text[2];
    if ((third & 0xc0) != 0x80)
        return 0;
    *size = 3;
    code = 0x2000u | (second & 0x3fu) << 6 | (third & 0x3fu);
    if (code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
        return code;
    return 0;
}

static void put_text(struct out *to, const char *text, uint32_t style, uint32_t level)
{
    for (int size; *text; text += size) {
        uint32_t code = unprintable(text, &size);
        if (code == '\n') {
            put_byte(to, '\n');
            if (style & RMQ_LOG_JOURNAL)
                put_priority(to, level);
            put(to, "    ");
        } else if (code) {
            put(to, code < 0x100 ? "\\x" : "\\u");
            if (code >= 0x100)
                put_hex(to, (uint8_t)(code >> 8));
            put_hex(to, (uint8_t)code);
        } else {
            size = 1;
            put_byte(to, *text);
        }
    }
}

static void put_json(struct out *to, const char *text)
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    put_byte(to, '"');
    for (int size; *text; text += size) {
        uint32_t code = unprintable(text, &size);
        const char *found = NULL;
        for (const char *pair = shorts; *pair && !found; pair += 2)
            found = *pair == *text ? pair : NULL;
        if (found) {
            put_byte(to, '\\');
            put_byte(to, found[1]);
        } else if (code) {
            put(to, "\\u");
            put_hex(to, (uint8_t)(code >> 8));
            put_hex(to, (uint8_t)code);
        } else {
            size = 1;
            put_byte(to, *text);
        }
    }
    put_byte(to, '"');
}

size_t rmq_log_format(char *into, size_t room, uint32_t style, int64_t time_ms, uint32_t level, const char *worker,
                      const char *text)
{
    struct out to = {into, 0, room - 1};
    if (style & RMQ_LOG_JOURNAL)
        put_priority(&to, level);
    if (style & RMQ_LOG_JSON) {
        put(&to, "{\"time\":\"");
        put_time(&to, time_ms);
        put(&to, "\",\"level\":\"");
        put(&to, level_name(level));
        put(&to, "\",\"worker\":");
        put_json(&to, worker);
        put(&to, ",\"text\":");
        put_json(&to, text);
        put_byte(&to, '}');
    } else {
        if (!(style & RMQ_LOG_JOURNAL)) {
            put_time(&to, time_ms);
            put_byte(&to, ' ');
        }
        put(&to, level_name(level));
        put_byte(&to, ' ');
        put_text(&to, worker, style, level);
        put_byte(&to, ' ');
        put_text(&to, text, style, level);
    }
    into[to.length] = '\n';
    return to.length + 1;
}

void rmq_log_style(uint32_t style) { process_style = style; }

void rmq_log_write(uint32_t level, const char *worker, const char *text)
{
    char line[RMQ_LOG_LINE_MAX];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    size_t length = rmq_log_format(line, sizeof line, process_style, time_ms, level, worker, text);
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
}
