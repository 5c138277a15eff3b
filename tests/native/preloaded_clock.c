/* A wall clock for tests, preloaded into the processes of a broker. The file that WALL_CLOCK_SHIFT names holds the seconds, as
 * an int64, that the wall clock is ahead. Its mapping is shared, so a test sets the clock of all processes at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t *mapped;

__attribute__((constructor)) static void map_shift(void)
{
    const char *path = getenv("WALL_CLOCK_SHIFT");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    mapped = at == MAP_FAILED ? NULL : at;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (!result && mapped && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *(volatile int64_t *)mapped;
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec wall;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &wall);
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (at)
        *at = wall.tv_sec;
    return wall.tv_sec;
}
