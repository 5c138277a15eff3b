/* Check and evaluation of compiled SQL92 conditions. The twin of the evaluation is filters/evaluator.py. */
#include "filter/filter_program.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/java_numbers.h"
#include "codec/pair_separators.h"
#include "codec/property_pairs.h"
#include "codec/record.h"

#define RECORD_WORK 64u      /* of a record, whatever it holds */
#define INSTRUCTION_WORK 16u

struct view {
    const struct rmq_filter_constant *constants;
    const struct rmq_filter_name *names;
    const uint32_t *code;
    const uint8_t *texts;
};

static struct view view_of(const struct rmq_filter_program *p)
{
    struct view v;
    v.constants = (const struct rmq_filter_constant *)(p + 1);
    v.names = (const struct rmq_filter_name *)(v.constants + p->constant_count);
    v.code = (const uint32_t *)(v.names + p->name_count);
    v.texts = (const uint8_t *)(v.code + p->instruction_count);
    return v;
}

/* --- check ------------------------------------------------------------------------------------------------ */

static int is_inside(const struct rmq_filter_program *p, uint64_t at, uint64_t length)
{
    return at <= p->text_bytes && length <= p->text_bytes - at;
}

static int constants_are_sound(const struct rmq_filter_program *p, const struct view *v)
{
    for (uint32_t i = 0; i < p->constant_count; i++) {
        const struct rmq_filter_constant *c = &v->constants[i];
        if (c->type > RMQ_CONSTANT_LIST || (c->type == RMQ_CONSTANT_TEXT && !is_inside(p, c->value, c->length)))
            return 0;
        if (c->type != RMQ_CONSTANT_LIST)
            continue;
        if (c->value > p->constant_count || c->length > p->constant_count - c->value)
            return 0;
        for (uint32_t k = 0; k < c->length; k++)
            if (v->constants[c->value + k].type != RMQ_CONSTANT_TEXT)
                return 0;
    }
    for (uint32_t i = 0; i < p->name_count; i++)
        if (!v->names[i].length || !is_inside(p, v->names[i].at, v->names[i].length))
            return 0;
    return 1;
}

/* Depth of the stack behind an instruction, -1 = it is not sound. */
static int depth_behind(const struct rmq_filter_program *p, const struct view *v, uint32_t i, int depth)
{
    uint32_t op = v->code[i] & 0xff, argument = v->code[i] >> 8;
    uint32_t type = argument < p->constant_count ? v->constants[argument].type : RMQ_CONSTANT_LIST + 1;
    switch (op) {
    case RMQ_FILTER_PROPERTY: return argument < p->name_count ? depth + 1 : -1;
    case RMQ_FILTER_CONSTANT: return type <= RMQ_CONSTANT_TEXT ? depth + 1 : -1;
    case RMQ_FILTER_EQUAL:
    case RMQ_FILTER_GREATER:
    case RMQ_FILTER_GREATER_EQUAL:
    case RMQ_FILTER_LESS:
    case RMQ_FILTER_LESS_EQUAL:
    case RMQ_FILTER_AND:
    case RMQ_FILTER_OR: return depth >= 2 ? depth - 1 : -1;
    case RMQ_FILTER_NOT:
    case RMQ_FILTER_CAST:
    case RMQ_FILTER_IS_NULL:
    case RMQ_FILTER_MAKE_UNKNOWN: return depth >= 1 ? depth : -1;
    case RMQ_FILTER_JUMP_IF_FALSE:
    case RMQ_FILTER_JUMP_IF_TRUE:
    case RMQ_FILTER_JUMP_IF_UNKNOWN: return depth >= 1 && argument <= p->instruction_count - i - 1 ? depth : -1;
    case RMQ_FILTER_IN:
    case RMQ_FILTER_NOT_IN: return depth >= 1 && type == RMQ_CONSTANT_LIST ? depth : -1;
    case RMQ_FILTER_CONTAINS:
    case RMQ_FILTER_NOT_CONTAINS:
    case RMQ_FILTER_STARTS:
    case RMQ_FILTER_NOT_STARTS:
    case RMQ_FILTER_ENDS:
    case RMQ_FILTER_NOT_ENDS: return depth >= 1 && type == RMQ_CONSTANT_TEXT ? depth : -1;
    default: return -1;
    }
}

static int is_jump(uint32_t op) { return op >= RMQ_FILTER_JUMP_IF_FALSE && op <= RMQ_FILTER_JUMP_IF_UNKNOWN; }

/* Depths agree at each instruction, whichever way leads there; one value is left at the end. */
static int code_is_sound(const struct rmq_filter_program *p, const struct view *v)
{
    uint16_t wanted[RMQ_FILTER_PROGRAM_MAX / 4 + 1]; /* depth + 1 that a jump brings along, 0 = none leads there */
    int depth = 0;
    memset(wanted, 0, (p->instruction_count + 1) * sizeof *wanted);
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        if (wanted[i] && wanted[i] != depth + 1)
            return 0;
        depth = depth_behind(p, v, i, depth);
        if (depth < 0 || depth > (int)p->stack_depth)
            return 0;
        if (!is_jump(v->code[i] & 0xff))
            continue;
        uint16_t *target = &wanted[i + 1 + (v->code[i] >> 8)];
        if (*target && *target != depth + 1)
            return 0;
        *target = (uint16_t)(depth + 1);
    }
    return depth == 1 && (!wanted[p->instruction_count] || wanted[p->instruction_count] == 2);
}

int rmq_filter_verify(const struct rmq_filter_program *p, uint64_t room)
{
    if (room < sizeof *p || p->bytes > room || p->bytes > RMQ_FILTER_PROGRAM_MAX)
        return -EINVAL;
    uint64_t bytes = sizeof *p + (uint64_t)p->constant_count * sizeof(struct rmq_filter_constant) +
                     (uint64_t)p->name_count * sizeof(struct rmq_filter_name) + (uint64_t)p->instruction_count * 4 + p->text_bytes;
    if (bytes != p->bytes || p->stack_depth > RMQ_FILTER_STACK_MAX || p->name_count > RMQ_FILTER_NAMES_MAX)
        return -EINVAL;
    struct view v = view_of(p);
    return constants_are_sound(p, &v) && code_is_sound(p, &v) ? 0 : -EINVAL;
}

/* --- values ------------------------------------------------------------------------------------------------- */

struct value {
    uint32_t type; /* RMQ_CONSTANT_* but LIST */
    uint32_t length;
    union {
        int64_t number;
        double real;
        const uint8_t *text;
    };
};

static struct value truth(int is_true) { return (struct value){.type = is_true ? RMQ_CONSTANT_TRUE : RMQ_CONSTANT_FALSE}; }

static int is_truth(const struct value *v) { return v->type == RMQ_CONSTANT_TRUE || v->type == RMQ_CONSTANT_FALSE; }

static struct value constant_value(const struct rmq_filter_constant *c, const struct view *v)
{
    struct value out = {.type = c->type, .length = c->length};
    if (c->type == RMQ_CONSTANT_TEXT)
        out.text = v->texts + c->value;
    else
        memcpy(&out.number, &c->value, 8);
    return out;
}

static struct value property_value(struct rmq_text text)
{
    return (struct value){.type = text.at ? RMQ_CONSTANT_TEXT : RMQ_CONSTANT_UNKNOWN, .length = text.length, .text = text.at};
}

static int order_of(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* Double.compareTo: -0.0 is below 0.0, NaN equals itself and is above infinity. */
static int order_of_reals(double a, double b)
{
    int64_t one, other;
    if (a < b || a > b)
        return a < b ? -1 : 1;
    memcpy(&one, &a, 8);
    memcpy(&other, &b, 8);
    return order_of(isnan(a) ? 0x7ff8000000000000 : one, isnan(b) ? 0x7ff8000000000000 : other);
}

static double real_of(const struct value *v) { return v->type == RMQ_CONSTANT_DOUBLE ? v->real : (double)v->number; }

/* The text as a value of the same type. 0 = Java throws. */
static int like(const struct value *pattern, struct value *text)
{
    struct value out = {.type = pattern->type};
    int ok;
    if (pattern->type == RMQ_CONSTANT_DOUBLE)
        ok = rmq_java_double(text->text, text->length, &out.real);
    else if (pattern->type == RMQ_CONSTANT_INT)
        ok = rmq_java_integer(text->text, text->length, INT32_MIN, INT32_MAX, &out.number);
    else
        ok = rmq_java_integer(text->text, text->length, INT64_MIN, INT64_MAX, &out.number);
    *text = out;
    return ok;
}

/* ComparisonExpression.__compare of two known values that are not both texts. 0 = Java throws. */
static int compare(struct value a, struct value b, int *order)
{
    if (a.type == RMQ_CONSTANT_TEXT) {
        if (is_truth(&b))
            a = truth(rmq_java_true(a.text, a.length));
        else if (!like(&b, &a))
            return 0;
    } else if (b.type == RMQ_CONSTANT_TEXT) {
        if (is_truth(&a) || !like(&a, &b))
            return 0; /* it casts the Boolean on the left to a String */
    }
    if (is_truth(&a) != is_truth(&b))
        *order = -1;
    else if (is_truth(&a))
        *order = order_of(a.type, b.type);
    else if (a.type == RMQ_CONSTANT_DOUBLE || b.type == RMQ_CONSTANT_DOUBLE)
        *order = order_of_reals(real_of(&a), real_of(&b));
    else
        *order = order_of(a.number, b.number);
    return 1;
}

static int texts_are_equal(const struct value *a, const struct value *b)
{
    return a->length == b->length && !memcmp(a->text, b->text, a->length);
}

/* 0 = Java throws. */
static int equal(const struct value *a, const struct value *b, struct value *out)
{
    int order;
    if (a->type == RMQ_CONSTANT_UNKNOWN || b->type == RMQ_CONSTANT_UNKNOWN) {
        *out = a->type == b->type ? truth(1) : a->type == RMQ_CONSTANT_UNKNOWN ? *a : truth(0);
        return 1;
    }
    if (a->type == RMQ_CONSTANT_TEXT && b->type == RMQ_CONSTANT_TEXT) {
        *out = truth(texts_are_equal(a, b));
        return 1;
    }
    if (!compare(*a, *b, &order))
        return 0;
    *out = truth(order == 0);
    return 1;
}

/* 0 = Java throws. */
static int ordered(uint32_t op, struct value a, struct value b, struct value *out)
{
    static const struct value real = {.type = RMQ_CONSTANT_DOUBLE};
    int order;
    if (a.type == RMQ_CONSTANT_UNKNOWN || b.type == RMQ_CONSTANT_UNKNOWN) {
        *out = (struct value){.type = RMQ_CONSTANT_UNKNOWN};
        return 1;
    }
    if (a.type == RMQ_CONSTANT_TEXT && b.type == RMQ_CONSTANT_TEXT && (!like(&real, &a) || !like(&real, &b)))
        return 0;
    if (!compare(a, b, &order))
        return 0;
    *out = truth(op == RMQ_FILTER_GREATER         ? order > 0
                 : op == RMQ_FILTER_GREATER_EQUAL ? order >= 0
                 : op == RMQ_FILTER_LESS          ? order < 0
                                                  : order <= 0);
    return 1;
}

static struct value combined(uint32_t op, const struct value *a, const struct value *b)
{
    uint32_t decides = op == RMQ_FILTER_AND ? RMQ_CONSTANT_FALSE : RMQ_CONSTANT_TRUE;
    if (a->type == decides || b->type == decides)
        return (struct value){.type = decides};
    if (a->type == RMQ_CONSTANT_UNKNOWN || b->type == RMQ_CONSTANT_UNKNOWN)
        return (struct value){.type = RMQ_CONSTANT_UNKNOWN};
    return truth(op == RMQ_FILTER_AND);
}

static int is_listed(const struct view *v, const struct rmq_filter_constant *list, const struct value *text)
{
    uint64_t low = list->value, high = list->value + list->length;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        const struct rmq_filter_constant *c = &v->constants[middle];
        int order = c->length != text->length ? order_of(c->length, text->length)
                                              : memcmp(v->texts + c->value, text->text, text->length);
        if (!order)
            return 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

static struct value searched(uint32_t op, const struct value *a, const struct value *b)
{
    int found = 0;
    if (a->type != RMQ_CONSTANT_TEXT)
        return truth(0);
    if (op == RMQ_FILTER_CONTAINS || op == RMQ_FILTER_NOT_CONTAINS)
        found = memmem(a->text, a->length, b->text, b->length) != NULL;
    else if (a->length >= b->length)
        found = !memcmp(op == RMQ_FILTER_STARTS || op == RMQ_FILTER_NOT_STARTS ? a->text : a->text + a->length - b->length, b->text,
                        b->length);
    return truth(found != (op == RMQ_FILTER_NOT_CONTAINS || op == RMQ_FILTER_NOT_STARTS || op == RMQ_FILTER_NOT_ENDS));
}

static struct value applied(const struct view *v, uint32_t op, uint32_t argument, const struct value *top)
{
    switch (op) {
    case RMQ_FILTER_NOT: return is_truth(top) ? truth(top->type == RMQ_CONSTANT_FALSE) : *top;
    case RMQ_FILTER_CAST: return top->type == RMQ_CONSTANT_UNKNOWN || is_truth(top) ? *top : truth(0);
    case RMQ_FILTER_IS_NULL: return truth(top->type == RMQ_CONSTANT_UNKNOWN);
    case RMQ_FILTER_MAKE_UNKNOWN: return (struct value){.type = RMQ_CONSTANT_UNKNOWN};
    case RMQ_FILTER_IN:
    case RMQ_FILTER_NOT_IN:
        if (top->type != RMQ_CONSTANT_TEXT)
            return (struct value){.type = RMQ_CONSTANT_UNKNOWN};
        return truth(is_listed(v, &v->constants[argument], top) == (op == RMQ_FILTER_IN));
    default: {
        struct value text = constant_value(&v->constants[argument], v);
        return searched(op, top, &text);
    }
    }
}

/* --- evaluation -------------------------------------------------------------------------------------------------- */

/* Keeps the value that begins behind `split`, if one of the program's names ends there. Names hold no separator, so the
 * separator or the begin before a name begins its pair. */
static void keep_value(const struct rmq_filter_program *p, const struct view *v, const uint8_t *at, const uint8_t *split,
                       const uint8_t *end, struct rmq_text *values)
{
    for (uint32_t i = 0; i < p->name_count; i++) {
        uint32_t length = v->names[i].length;
        const uint8_t *name = v->texts + v->names[i].at, *start = split - length;
        if ((uint64_t)(split - at) < length || *start != *name || (start != at && start[-1] != RMQ_PAIR_END) ||
            memcmp(start, name, length) != 0)
            continue;
        const uint8_t *stop = memchr(split + 1, RMQ_PAIR_END, (size_t)(end - split - 1));
        uint32_t bytes = (uint32_t)((stop ? stop : end) - split - 1);
        if (bytes)
            values[i] = (struct rmq_text){split + 1, bytes};
    }
}

/* The values of the program's names, by one pass over the properties. It takes the pairs that rmq_next_pair gives. Of several
 * pairs of a name the last counts. */
static void find_properties(const struct rmq_filter_program *p, const struct view *v, const uint8_t *at, uint32_t length,
                            struct rmq_text *values)
{
    struct rmq_separators splits = {.begin = at, .at = at, .end = at + length};
    for (uint32_t i = 0; i < p->name_count; i++)
        values[i].at = NULL;
    for (const uint8_t *split; (split = rmq_next_separator(&splits, RMQ_NAME_VALUE)) < splits.end;)
        keep_value(p, v, at, split, splits.end, values);
}

static int jumps(uint32_t op, uint32_t type)
{
    return op == RMQ_FILTER_JUMP_IF_FALSE  ? type == RMQ_CONSTANT_FALSE
           : op == RMQ_FILTER_JUMP_IF_TRUE ? type == RMQ_CONSTANT_TRUE
                                           : type == RMQ_CONSTANT_UNKNOWN;
}

static uint32_t text_work(const struct value *a) { return a->type == RMQ_CONSTANT_TEXT ? a->length : 0; }

int rmq_filter_properties(const uint8_t *record, uint32_t size, const uint8_t **properties, uint32_t *length)
{
    if (size < RMQ_RECORD_FIXED_BYTES)
        return 0;
    uint32_t sys_flag = rmq_get32(record + 36), is_long = rmq_get32(record + 4) == RMQ_MAGIC_V2;
    uint64_t at = 68u + (sys_flag & RMQ_SYS_BORN_HOST_V6 ? 20 : 8) + (sys_flag & RMQ_SYS_STORE_HOST_V6 ? 20 : 8);
    if (at + 4 > size)
        return 0;
    at += 4 + (uint64_t)rmq_get32(record + at);
    if (at + 2 > size)
        return 0;
    at += is_long ? 2u + rmq_get16(record + at) : 1u + record[at];
    if (at + 2 > size || at + 2 + rmq_get16(record + at) > size)
        return 0;
    *length = rmq_get16(record + at);
    *properties = record + at + 2;
    return 1;
}

int rmq_filter_evaluate(const struct rmq_filter_program *p, const uint8_t *properties, uint32_t length, uint64_t *work)
{
    struct view v = view_of(p);
    struct rmq_text values[RMQ_FILTER_NAMES_MAX];
    struct value stack[RMQ_FILTER_STACK_MAX + 1], *top = stack; /* the value on top is top[-1] */
    uint64_t done = RECORD_WORK + length + (uint64_t)(length / 32) * p->name_count;
    int runs = 1;
    find_properties(p, &v, properties, length, values);
    for (uint32_t i = 0; i < p->instruction_count && runs; i++) {
        uint32_t op = v.code[i] & 0xff, argument = v.code[i] >> 8;
        done += INSTRUCTION_WORK;
        if (op == RMQ_FILTER_PROPERTY) {
            *top++ = property_value(values[argument]);
        } else if (op == RMQ_FILTER_CONSTANT) {
            *top++ = constant_value(&v.constants[argument], &v);
        } else if (is_jump(op)) {
            if (jumps(op, top[-1].type))
                i += argument;
        } else if (op == RMQ_FILTER_AND || op == RMQ_FILTER_OR) {
            top--;
            top[-1] = combined(op, &top[-1], &top[0]);
        } else if (op <= RMQ_FILTER_LESS_EQUAL) {
            top--;
            done += text_work(&top[-1]) + text_work(&top[0]);
            struct value result;
            runs = op == RMQ_FILTER_EQUAL ? equal(&top[-1], &top[0], &result) : ordered(op, top[-1], top[0], &result);
            if (runs)
                top[-1] = result;
        } else {
            done += text_work(&top[-1]);
            top[-1] = applied(&v, op, argument, &top[-1]);
        }
    }
    *work += done;
    if (!runs)
        return RMQ_FILTER_THROWS;
    return top[-1].type == RMQ_CONSTANT_TRUE ? RMQ_FILTER_TRUE : top[-1].type == RMQ_CONSTANT_FALSE ? RMQ_FILTER_FALSE : RMQ_FILTER_UNKNOWN;
}
