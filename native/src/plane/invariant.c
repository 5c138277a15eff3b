#include "plane/invariant.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log_line.h"
#include "plane/plane.h"
#include "plane/ring.h"

static struct rmq_role *armed;

/* A line of text, made without library calls that take locks or memory. */
struct text {
    char bytes[768];
    size_t length;
};

static void put(struct text *to, const char *text)
{
    for (; *text && to->length < sizeof to->bytes - 1; text++)
        to->bytes[to->length++] = *text;
}

static void put_number(struct text *to, int64_t value)
{
    char digits[24];
    int at = sizeof digits - 1;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (value < 0)
        digits[--at] = '-';
    put(to, digits + at);
}

static const char *base_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/* Names a line of the sources in 32 bits, never 0. */
static uint32_t number_of(const char *file, uint32_t line)
{
    uint32_t hash = 2166136261u;
    for (; *file; file++)
        hash = (hash ^ (uint8_t)*file) * 16777619u;
    return (hash ^ hash >> 16) << 16 | (line & 0xffff ? line & 0xffff : 1);
}

void rmq_invariant_arm(struct rmq_plane *plane, uint32_t role) { armed = &rmq_header(plane)->roles[role]; }

void rmq_invariant_report(const char *file, uint32_t line, const char *condition, const char *names,
                          const int64_t *values, uint32_t count)
{
    struct text text = {.length = 0};
    file = base_of(file);
    put(&text, "broken invariant, ");
    put(&text, file);
    put(&text, ":");
    put_number(&text, line);
    put(&text, ": not ");
    put(&text, condition);
    put(&text, "; ");
    put(&text, names);
    put(&text, " = ");
    for (uint32_t i = 0; i < count && i < RMQ_INVARIANT_VALUES_MAX; i++) {
        put(&text, i ? ", " : "");
        put_number(&text, values[i]);
    }
    text.bytes[text.length] = 0;
    rmq_log_write(RMQ_LOG_CRITICAL, armed ? armed->name : "(none)", text.bytes);
    if (armed) {
        rmq_store(&armed->invariant_line, number_of(file, line));
        rmq_store(&armed->invariant_failures, armed->invariant_failures + 1);
    }
}

void rmq_invariant_broken(const char *file, uint32_t line, const char *condition, const char *names,
                          const int64_t *values, uint32_t count)
{
    rmq_invariant_report(file, line, condition, names, values, count);
    if (!armed)
        abort();
    _exit(RMQ_EXIT_INVARIANT);
}
