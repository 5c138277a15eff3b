/* answerer_rules.h: the answerer of a request, where several answer its code. */
#ifndef RMQ_ANSWERER_RULES_H
#define RMQ_ANSWERER_RULES_H

#include "codec/frame_header.h"
#include "plane/asks.h"

/* The row that gets this request. Rows of one code share it by the fields `consumerGroup` and `topic`; a missing one counts as
 * empty. RMQ_NONE = several rows have the code, and the header is unusual or one of the two has no plain text. */
uint32_t rmq_answerer_for(struct rmq_plane *plane, const struct rmq_frame_header *h);

#endif
