/* filter_layout.h: compiled SQL92 conditions, and the table of them in the plane. Control compiles and publishes
 * (filter_table.c); read workers copy, verify and run (filter_program.c).
 *
 * A slot holds one expression with its program. Its version is odd while the program stands, and even while control fills it
 * or has withdrawn it (layout.h, 5). A subscription of kind FILTER, and a read worker's own copy, name slot and version.
 */
#ifndef RMQ_FILTER_LAYOUT_H
#define RMQ_FILTER_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_FILTERS_MAX 1024
#define RMQ_FILTER_TEXT_MAX 8192
#define RMQ_FILTER_PROGRAM_MAX 24512
#define RMQ_FILTER_NAMES_MAX 64
#define RMQ_FILTER_STACK_MAX 272

/* Behind the head: constants, names, instructions, texts. */
struct rmq_filter_program {
    uint32_t bytes;              /* of all, with the head */
    uint32_t constant_count;
    uint32_t name_count;
    uint32_t instruction_count;
    uint32_t text_bytes;
    uint32_t stack_depth;
};

struct rmq_filter_constant {
    uint32_t type;               /* RMQ_CONSTANT_* */
    uint32_t length;             /* bytes of a TEXT, texts of a LIST */
    uint64_t value;              /* a number, its bits, the place of a text, the first constant of a list */
};
#define RMQ_CONSTANT_UNKNOWN 0
#define RMQ_CONSTANT_FALSE 1
#define RMQ_CONSTANT_TRUE 2
#define RMQ_CONSTANT_INT 3       /* Java's Integer, as int64 */
#define RMQ_CONSTANT_LONG 4
#define RMQ_CONSTANT_DOUBLE 5
#define RMQ_CONSTANT_TEXT 6
#define RMQ_CONSTANT_LIST 7      /* texts, sorted by length, then by bytes */

struct rmq_filter_name {
    uint32_t at;
    uint32_t length;
};

struct rmq_filter_slot {
    uint32_t version;            /* odd: whole */
    uint32_t text_length;
    uint32_t program_bytes;
    uint8_t reserved[52];
    uint8_t text[RMQ_FILTER_TEXT_MAX];
    uint8_t program[RMQ_FILTER_PROGRAM_MAX];
};

struct rmq_filters {
    uint64_t slots_at;
    uint32_t reserved[14];
    uint32_t hashes[RMQ_FILTERS_MAX]; /* of the expressions, by slot */
};
/* cdef-end */

/* An instruction is 32 bits: operation in the lowest 8, argument in the others. filters/program.py says what each does. */
enum rmq_filter_op {
    RMQ_FILTER_PROPERTY = 1, RMQ_FILTER_CONSTANT, RMQ_FILTER_EQUAL, RMQ_FILTER_GREATER, RMQ_FILTER_GREATER_EQUAL,
    RMQ_FILTER_LESS, RMQ_FILTER_LESS_EQUAL, RMQ_FILTER_NOT, RMQ_FILTER_CAST, RMQ_FILTER_IS_NULL, RMQ_FILTER_MAKE_UNKNOWN,
    RMQ_FILTER_AND, RMQ_FILTER_OR, RMQ_FILTER_JUMP_IF_FALSE, RMQ_FILTER_JUMP_IF_TRUE, RMQ_FILTER_JUMP_IF_UNKNOWN,
    RMQ_FILTER_IN, RMQ_FILTER_NOT_IN, RMQ_FILTER_CONTAINS, RMQ_FILTER_NOT_CONTAINS, RMQ_FILTER_STARTS, RMQ_FILTER_NOT_STARTS,
    RMQ_FILTER_ENDS, RMQ_FILTER_NOT_ENDS
};

_Static_assert(sizeof(struct rmq_filter_program) == 24, "filter program");
_Static_assert(sizeof(struct rmq_filter_constant) == 16, "filter constant");
_Static_assert(sizeof(struct rmq_filter_slot) == 32768, "filter slot");
#endif
