/* connection_output.h: what output.c keeps of a connection.
 *
 * What stays true: `sending` is set while operations of the kernel use the pieces at the front of `queue`, which stays
 * meanwhile.
 */
#ifndef RMQ_CONNECTION_OUTPUT_H
#define RMQ_CONNECTION_OUTPUT_H

#include <stdint.h>

struct rmq_output;

struct rmq_connection_output {
    struct rmq_output *queue; /* NULL: nothing is to be sent */
    uint8_t sending;          /* or reading the next bytes to send */
    uint8_t dirty;            /* it is in the list, which outlives a connection */
};

static inline void rmq_connection_output_begin(struct rmq_connection_output *output)
{
    output->queue = NULL;
    output->sending = 0;
}
#endif
