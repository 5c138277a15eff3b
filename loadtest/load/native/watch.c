#include "watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int watch_parse(struct watch *w, const char *text)
{
    w->count = 0;
    while (*text) {
        char *end;
        long pid = strtol(text, &end, 10);
        if (end == text || pid <= 0 || pid > 1 << 22 || w->count == WATCH_MAX || (*end != ',' && *end != 0))
            return -EINVAL;
        w->processes[w->count++] = (struct watched){.pid = (int)pid};
        text = *end ? end + 1 : end;
    }
    return 0;
}

/* Adds factor * (time used so far); a process that is gone adds nothing. */
static void add_times(struct watched *p, double factor)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", p->pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    /* The name in parentheses may hold anything, so the fields are counted from its end. */
    const char *after = strrchr(text, ')');
    unsigned long user, system;
    if (after == NULL || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return;
    double tick = (double)sysconf(_SC_CLK_TCK);
    p->user_s += factor * (double)user / tick;
    p->system_s += factor * (double)system / tick;
}

void watch_begin(struct watch *w)
{
    for (int i = 0; i < w->count; i++)
        add_times(&w->processes[i], -1);
}

void watch_end(struct watch *w)
{
    for (int i = 0; i < w->count; i++) {
        add_times(&w->processes[i], 1);
        if (w->processes[i].user_s < 0 || w->processes[i].system_s < 0)
            w->processes[i].user_s = w->processes[i].system_s = 0;
    }
}
