#include "timer/timer_pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sigbus_guard.h"

static struct rmq_timer_files *covered;
static uintptr_t page_bytes;

/* End of the mapping if the address is in it, else 0. */
static uintptr_t end_of(const uint8_t *base, uint64_t bytes, uintptr_t address)
{
    uintptr_t begin = (uintptr_t)base, end = begin + (bytes + page_bytes - 1) / page_bytes * page_bytes;
    return address >= begin && address < end ? end : 0;
}

static int replace(void *missing)
{
    struct rmq_timer_files *f = covered;
    uintptr_t address = (uintptr_t)missing, page = address - address % page_bytes;
    uintptr_t end = end_of(f->wheel, (uint64_t)RMQ_TIMER_SLOTS * RMQ_TIMER_SLOT_BYTES, address);
    for (uint32_t i = 0; !end && i < f->file_count; i++)
        end = end_of(f->log[i], f->file_bytes, address);
    if (!end)
        return 0;
    int kept = errno;
    void *at = mmap((void *)page, end - page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = kept;
    if (at == MAP_FAILED)
        return 0;
    if (!f->missing)
        f->missing = missing;
    return 1;
}

int rmq_timer_pages_cover(struct rmq_timer_files *f)
{
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    covered = f;
    rmq_sigbus_guard_replace(replace);
    return rmq_sigbus_guard_open();
}

void rmq_timer_pages_uncover(const struct rmq_timer_files *f)
{
    if (covered != f)
        return;
    rmq_sigbus_guard_replace(NULL);
    covered = NULL;
}
