#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ceiling.h"
#include "control.h"

enum { COPY_CHUNK = 1 << 18 };

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int send_all(int socket, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(socket, data, len < COPY_CHUNK ? len : COPY_CHUNK, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

double ceiling_copy_out(const char *path, int port)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) < 0)
        return -errno;
    size_t bytes = (size_t)status.st_size;
    void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED)
        return -errno;
    double result = tcp_connect("127.0.0.1", port);
    if (result >= 0) {
        int socket = (int)result;
        double begin = seconds_now();
        char done;
        result = send_all(socket, base, bytes);
        if (result == 0)
            result = recv(socket, &done, 1, 0) == 1 ? seconds_now() - begin : -ECONNRESET;
        close(socket);
    }
    munmap(base, bytes);
    return result;
}

static int write_all(int file, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(file, data, len);
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* `bytes` of the connection into the file; seconds since the first ones, or negative errno. */
static double receive_into(int socket, int file, size_t bytes)
{
    uint8_t *chunk = malloc(COPY_CHUNK);
    double begin = 0, result = chunk == NULL ? -ENOMEM : 0;
    for (size_t at = 0; result == 0 && at < bytes;) {
        ssize_t n = recv(socket, chunk, COPY_CHUNK, 0);
        if (at == 0)
            begin = seconds_now();
        result = n <= 0 ? -ECONNRESET : write_all(file, chunk, (size_t)n);
        at += n > 0 ? (size_t)n : 0;
    }
    free(chunk);
    if (result == 0)
        result = send(socket, "", 1, MSG_NOSIGNAL) == 1 ? seconds_now() - begin : -errno;
    return result;
}

double ceiling_copy_in(const char *path, int port, size_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (listener < 0 || file < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&address, &len) < 0)
        return -errno;
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    double result = socket < 0 ? -errno : receive_into(socket, file, bytes);
    if (socket >= 0)
        close(socket);
    close(listener);
    close(file);
    return result;
}
