/* Processor time of other processes (the broker's workers) over the measured window, from /proc. */
#ifndef RINGMQ_LOAD_WATCH_H
#define RINGMQ_LOAD_WATCH_H

enum { WATCH_MAX = 64 };

struct watched {
    int pid;
    double user_s, system_s; /* between watch_begin and watch_end */
};

struct watch {
    int count;
    struct watched processes[WATCH_MAX];
};

/* Reads a list such as "12,13"; -EINVAL for anything else or more than WATCH_MAX numbers. */
int watch_parse(struct watch *w, const char *text);
void watch_begin(struct watch *w);
void watch_end(struct watch *w);

#endif
