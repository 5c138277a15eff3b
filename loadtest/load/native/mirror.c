#include "mirror.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int mirror_init(struct mirror *m, size_t cap)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    cap = (cap + page - 1) / page * page;
    *m = (struct mirror){.cap = cap};
    int fd = memfd_create("ringmq-load", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)cap) < 0)
        goto fail;
    uint8_t *base = mmap(NULL, 2 * cap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        goto fail;
    m->base = base;
    for (int half = 0; half < 2; half++)
        if (mmap(base + (size_t)half * cap, cap, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            goto fail;
    close(fd);
    return 0;
fail:;
    int rc = -errno;
    close(fd);
    mirror_free(m);
    return rc;
}

void mirror_free(struct mirror *m)
{
    if (m->base != NULL)
        munmap(m->base, 2 * m->cap);
    m->base = NULL;
}
