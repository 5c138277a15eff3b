/* fake_engine.h: the event engine of engine.h without a kernel: the driver makes its events.
 *
 * Buffers that the reader has lent are poisoned; a received buffer is readable for the received bytes alone, so that the
 * address sanitizer sees a reader that looks beyond them.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "engine/engine.h"

/* Takes `fd` as an accepted connection. 0 when no accept is armed. */
int fake_accept(int fd, uint64_t listener);
/* Connections whose receive is armed; `tag` of the n-th. */
uint32_t fake_receivers(void);
uint64_t fake_receiver(uint32_t number);
/* Delivers bytes to the n-th receiver: at most a buffer. How many went; 0 when no buffer was lent (the receive ends). */
uint32_t fake_deliver(uint32_t number, const uint8_t *bytes, uint32_t length);
/* Ends the n-th receiver: 0 = closed by the peer, else -errno. */
void fake_end(uint32_t number, int result);
/* Bytes that sends have taken so far. */
uint64_t fake_sent_bytes(void);
/* Sends under way; finishes one: all of it, a part, or an error. */
uint32_t fake_sends(void);
void fake_finish_send(void);

#endif
