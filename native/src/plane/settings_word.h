/* settings_word.h: the settings of a topic or of a group. They are one word (tables_layout.h), so control changes them by one
 * store, and a look-up sees all of the old ones or all of the new ones. broker/tables/publication.py packs the words.
 */
#ifndef RMQ_SETTINGS_WORD_H
#define RMQ_SETTINGS_WORD_H

#include "plane/tables_layout.h"

/* RMQ_TOPIC_* flags */
static inline uint32_t rmq_topic_flags(uint64_t word) { return (uint32_t)(word >> 40); }
static inline int rmq_topic_is_live(uint64_t word) { return (rmq_topic_flags(word) & RMQ_TOPIC_LIVE) != 0; }
static inline uint32_t rmq_topic_perm(uint64_t word) { return word & 0xff; }
static inline uint32_t rmq_topic_read_queues(uint64_t word) { return word >> 8 & 0xffff; }
static inline uint32_t rmq_topic_write_queues(uint64_t word) { return word >> 24 & 0xffff; }

/* The broker that the members of a group should read from; `is_slow`: from which to read far back in the log. */
static inline uint32_t rmq_group_broker(uint64_t word, int is_slow)
{
    return word >> (is_slow ? RMQ_GROUP_SLOW_BROKER_SHIFT : RMQ_GROUP_BROKER_SHIFT) & 0xffff;
}
#endif
