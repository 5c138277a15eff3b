#include "admission/admission_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CODE_SYSTEM_ERROR 1
#define CODE_ILLEGAL 13
#define VALUE_SHOWN 32

static int is_named(const struct rmq_reserved_pair *pair, const char *name)
{
    return pair->name_length == strlen(name) && !memcmp(pair->name, name, pair->name_length);
}

/* The last pair of that name counts. RMQ_RESERVED_PAIRS_MAX: there is none. */
static uint32_t find(const struct rmq_send *s, const char *name)
{
    uint32_t count = s->reserved_count < RMQ_RESERVED_PAIRS_MAX ? s->reserved_count : RMQ_RESERVED_PAIRS_MAX;
    while (count--)
        if (is_named(&s->reserved[count], name))
            return count;
    return RMQ_RESERVED_PAIRS_MAX;
}

static int has(const struct rmq_send *s, const char *name) { return find(s, name) < RMQ_RESERVED_PAIRS_MAX; }

/* A sign, then ASCII digits, as a 64-bit number. 0 = any other text. */
static int read_number(const uint8_t *text, uint32_t length, int64_t *number)
{
    uint32_t at = length && (*text == '-' || *text == '+');
    int is_negative = at && *text == '-';
    int64_t value = 0;
    if (at == length)
        return 0;
    for (; at < length; at++) {
        int64_t digit = text[at] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, is_negative ? -digit : digit, &value))
            return 0;
    }
    *number = value;
    return 1;
}

/* The asked time in ms since the epoch, the farthest one for sums that do not fit. */
static int64_t deliver_ms(int64_t value, int64_t unit_ms, int64_t now_ms)
{
    int64_t far = value < 0 ? INT64_MIN : INT64_MAX, delay_ms, at_ms;
    if (!unit_ms)
        return value;
    if (__builtin_mul_overflow(value, unit_ms, &delay_ms) || __builtin_add_overflow(now_ms, delay_ms, &at_ms))
        return far;
    return at_ms;
}

/* The precision step before the one in which the message is due: a time on a step's edge belongs to the step that ends there. */
static int64_t round_down(int64_t at_ms, int64_t precision_ms)
{
    int64_t rest = at_ms % precision_ms;
    return at_ms - (rest ? rest : precision_ms);
}

uint32_t rmq_time_asked(const struct rmq_send *s, const struct rmq_admission_rule *rule, int64_t now_ms, struct rmq_admitted *out)
{
    static const struct {
        const char *name;
        int64_t unit_ms; /* 0: not a delay but a time */
    } pairs[] = {{"TIMER_DELAY_SEC", 1000}, {"TIMER_DELAY_MS", 1}, {"TIMER_DELIVER_MS", 0}};
    uint32_t n = 0;
    int64_t value, at_ms;
    while (n < sizeof pairs / sizeof *pairs && !has(s, pairs[n].name))
        n++;
    if (n == sizeof pairs / sizeof *pairs || has(s, "TIMER_OUT_MS"))
        return RMQ_TIME_NONE;
    out->time_pair = find(s, pairs[n].name);
    if (!rule->precision_ms)
        return RMQ_TIME_DISABLED;
    if (!read_number(s->reserved[out->time_pair].value, s->reserved[out->time_pair].value_length, &value))
        return RMQ_TIME_NO_NUMBER;
    at_ms = deliver_ms(value, pairs[n].unit_ms, now_ms);
    if (at_ms <= now_ms)
        return has(s, "TIMER_DEL_UNIQKEY") ? RMQ_TIME_DELETES_PASSED : RMQ_TIME_PASSED;
    if (at_ms - now_ms > rule->delay_max_ms)
        return RMQ_TIME_TOO_FAR;
    out->out_ms = round_down(at_ms, rule->precision_ms);
    return RMQ_TIME_LATER;
}

void rmq_admit_slot(const struct rmq_admission_rule *rule, int64_t messages, uint32_t chance, struct rmq_admitted *out)
{
    int64_t limit = rule->slot_messages_max;
    if (messages <= limit || (messages < 2 * limit && (int64_t)chance * limit >= RMQ_CHANCES * (messages - limit)))
        return;
    out->verdict = RMQ_ADMIT_REFUSE;
    out->time_fault = RMQ_TIME_SLOT_FULL;
    out->slot_messages = (uint32_t)messages;
}

int32_t rmq_time_code(uint32_t fault)
{
    return fault == RMQ_TIME_DISABLED || fault == RMQ_TIME_SLOT_FULL ? CODE_SYSTEM_ERROR : CODE_ILLEGAL;
}

static const char *illegal_because(uint32_t fault)
{
    switch (fault) {
    case RMQ_TIME_NO_NUMBER: return "is no whole number of 64 bits";
    case RMQ_TIME_TOO_FAR: return "is too far";
    default: return "has passed";
    }
}

/* The front of a client's value, as printable ASCII. */
static void show(char *to, const uint8_t *value, uint32_t length)
{
    uint32_t i = 0;
    for (; i < length && i < VALUE_SHOWN; i++)
        to[i] = value[i] < 0x20 || value[i] > 0x7e ? '?' : (char)value[i];
    to[i] = 0;
}

void rmq_time_remark(char *to, const struct rmq_send *s, const struct rmq_admission_rule *rule, const struct rmq_admitted *admitted)
{
    const struct rmq_reserved_pair *pair = &s->reserved[admitted->time_pair];
    int n = (int)pair->name_length;
    const char *name = (const char *)pair->name;
    char value[VALUE_SHOWN + 1];
    show(value, pair->value, pair->value_length);
    int64_t limit = rule->slot_messages_max;
    switch (admitted->time_fault) {
    case RMQ_TIME_DISABLED:
        snprintf(to, RMQ_TIME_REMARK_MAX, "accurate timer message is not enabled, timerWheelEnable is false: %.*s = %s", n, name,
                 value);
        return;
    case RMQ_TIME_SLOT_FULL:
        snprintf(to, RMQ_TIME_REMARK_MAX, "timer message is under flow control, max num limit is %" PRId64
                 " or the current value is greater than %" PRId64 " and less than %" PRId64
                 ", trigger random flow control: %.*s = %s asks for a slot of %" PRIu32 " messages",
                 2 * limit, limit, 2 * limit, n, name, value, admitted->slot_messages);
        return;
    default:
        snprintf(to, RMQ_TIME_REMARK_MAX, "timer message illegal, the delay time should not be bigger than the max delay %" PRId64
                 "ms; or if set del msg, the delay time should be bigger than the current time: %.*s = %s %s",
                 rule->delay_max_ms, n, name, value, illegal_because(admitted->time_fault));
    }
}
