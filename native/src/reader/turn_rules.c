/* The rules of turn_rules.h. */
#include "reader/turn_rules.h"

#define UNITS 128
#define UNITS_LATE 16
#define UNITS_OF_TURN 8192u
#define ONCE_BYTES 65536u
#define SEND_BYTES (1u << 20)
#define BYTES_OF_TURN (4u << 20)

int32_t rmq_turn_units(uint32_t used) { return used < UNITS_OF_TURN ? UNITS : UNITS_LATE; }

uint64_t rmq_turn_send_bytes(uint64_t waiting, uint64_t handed)
{
    if (waiting <= ONCE_BYTES)
        return waiting;
    if (handed >= BYTES_OF_TURN)
        return 0;
    return waiting < SEND_BYTES ? waiting : SEND_BYTES;
}
