/* ringmq-ceiling: what the machine gives at most, to measure brokers against. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ceiling.h"
#include "crc32.h"

static const char HELP[] =
    "usage: ringmq-ceiling serve --log FILE      copies frames to a mapped log, answers 64 bytes each\n"
    "       ringmq-ceiling pull                  answers --count stored messages of --size bytes each\n"
    "       ringmq-ceiling fdatasync --log FILE  writes --write bytes and syncs, over and over; prints JSON\n"
    "       ringmq-ceiling copy-in --log FILE    writes --log-bytes that one connection brings; prints JSON\n"
    "       ringmq-ceiling copy-out --log FILE   sends the file to --port and waits until it is written; prints JSON\n"
    "options: --port 0 --pin CPU --log-bytes 268435456 --count 32 --size 1024 --write 4096 --seconds 3\n";

static long long number(const char *name, const char *text, long long min, long long max)
{
    char *end;
    errno = 0;
    long long value = text == NULL ? min - 1 : strtoll(text, &end, 10);
    if (text == NULL || *end != 0 || end == text || errno != 0 || value < min || value > max) {
        fprintf(stderr, "ringmq-ceiling: %s: a whole number from %lld to %lld is needed\n", name, min, max);
        exit(1);
    }
    return value;
}

static int measure_fdatasync(const struct ceiling_config *config, size_t write_bytes, double seconds)
{
    struct ceiling_log log;
    int rc = ceiling_log_open(&log, config->log_path, config->log_bytes);
    if (rc < 0)
        return rc;
    double rate = ceiling_fdatasync_rate(&log, write_bytes, seconds);
    ceiling_log_close(&log);
    if (rate < 0)
        return (int)rate;
    printf("{\"fdatasync_per_s\":%.1f,\"write_bytes\":%zu}\n", rate, write_bytes);
    return 0;
}

/* copy-in or copy-out. */
static int measure_copy(const struct ceiling_config *config, int in)
{
    double seconds = in ? ceiling_copy_in(config->log_path, config->port, config->log_bytes)
                        : ceiling_copy_out(config->log_path, config->port);
    if (seconds < 0)
        return (int)seconds;
    printf("{\"seconds\":%.6f}\n", seconds);
    return 0;
}

int main(int argc, char **argv)
{
    struct ceiling_config config = {.log_bytes = 1 << 28};
    const char *command = argc > 1 ? argv[1] : "--help";
    long long count = 32, size = 1024, write_bytes = 4096, seconds = 3;
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--port") == 0) {
            config.port = (int)number(name, value, 0, 65535);
        } else if (strcmp(name, "--log") == 0 && value != NULL) {
            config.log_path = value;
        } else if (strcmp(name, "--log-bytes") == 0) {
            config.log_bytes = (size_t)number(name, value, 1 << 20, 1LL << 40);
        } else if (strcmp(name, "--count") == 0) {
            count = number(name, value, 1, 1024);
        } else if (strcmp(name, "--size") == 0) {
            size = number(name, value, 1, 65536);
        } else if (strcmp(name, "--write") == 0) {
            write_bytes = number(name, value, 1, 1 << 20);
        } else if (strcmp(name, "--seconds") == 0) {
            seconds = number(name, value, 1, 3600);
        } else if (strcmp(name, "--pin") == 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((size_t)number(name, value, 0, 1023), &set);
            if (sched_setaffinity(0, sizeof set, &set) < 0) {
                perror("ringmq-ceiling: --pin");
                return 1;
            }
        } else {
            fprintf(stderr, "ringmq-ceiling: unknown option %s\n%s", name, HELP);
            return 1;
        }
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    crc32_init();
    int rc = -EINVAL;
    if (strcmp(command, "pull") == 0) {
        config.pull_count = (uint32_t)count;
        config.pull_size = (uint32_t)size;
        rc = ceiling_serve(&config);
    } else if (strcmp(command, "serve") == 0 && config.log_path != NULL) {
        rc = ceiling_serve(&config);
    } else if (strcmp(command, "fdatasync") == 0 && config.log_path != NULL) {
        rc = measure_fdatasync(&config, (size_t)write_bytes, (double)seconds);
    } else if (strncmp(command, "copy-", 5) == 0 && config.log_path != NULL) {
        rc = measure_copy(&config, strcmp(command, "copy-in") == 0);
    } else {
        fputs(HELP, stderr);
        return 1;
    }
    if (rc < 0)
        fprintf(stderr, "ringmq-ceiling: %s: %s\n", command, strerror(-rc));
    return rc < 0;
}
