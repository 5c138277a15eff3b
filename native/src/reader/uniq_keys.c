#include "reader/uniq_keys.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "codec/answer.h"

void rmq_uniq_keys_open(struct rmq_uniq_keys *keys, const struct rmq_read_context *context)
{
    uint8_t raw[32];
    uint32_t n = context->settings->store_host_bytes == 16 ? 16 : 4, pid = (uint32_t)getpid();
    uint32_t mark = (uint32_t)rmq_mono_ns() ^ context->generation << 24 ^ context->port_number << 16;
    memcpy(raw, context->settings->store_host, n);
    raw[n] = (uint8_t)(pid >> 8);
    raw[n + 1] = (uint8_t)pid;
    memcpy(raw + n + 2, &mark, 4);
    memcpy(keys->prefix, RMQ_UNIQ_NAME "\x01", 9);
    rmq_hex_put((uint8_t *)keys->prefix + 9, raw, n + 6);
    keys->prefix_length = 9 + 2 * (n + 6);
    time_t now = time(NULL);
    struct tm month;
    gmtime_r(&now, &month);
    month.tm_mday = 1;
    month.tm_hour = month.tm_min = month.tm_sec = 0;
    keys->month_ms = (int64_t)timegm(&month) * 1000;
}

void rmq_uniq_pair_put(struct rmq_uniq_keys *keys, uint8_t *to)
{
    uint32_t ms = (uint32_t)(rmq_wall_ms() - keys->month_ms), count = keys->counter++;
    uint8_t raw[6] = {(uint8_t)(ms >> 24), (uint8_t)(ms >> 16),    (uint8_t)(ms >> 8),
                      (uint8_t)ms,         (uint8_t)(count >> 8), (uint8_t)count};
    memcpy(to, keys->prefix, keys->prefix_length);
    rmq_hex_put(to + keys->prefix_length, raw, 6);
    to[keys->prefix_length + 12] = 2;
}
