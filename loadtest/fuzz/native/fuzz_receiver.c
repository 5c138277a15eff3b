/* A master's stream against the ha role of a slave, under sanitizers: GOLDEN SEED INPUTS FOLDER. Each input is one transfer.
 *
 * GOLDEN holds records of a CommitLog. The driver is the master: it sends them in transfers as a master cuts them, in odd
 * pieces, with heartbeats and blanks at file ends; one transfer in six breaks a rule or carries damaged bytes. After each
 * turn append_offset has only grown, over whole records that equal the sent ones, and no report lies beyond it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "codec/record.h"
#include "fuzz.h"
#include "ha/ha_receiver.h"
#include "log/segment.h"
#include "plane/ring.h"

enum { FILE_BYTES = 1 << 17, OFFSET_AT = 28, OUT_MAX = 1 << 18, LIFE_INPUTS = 20000, KEPT_FILES = 3, BLANK_BYTES = 8 };

static struct rmq_plane plane;
static struct rmq_receiver *receiver;
static char folder[512], root[512];
static int master = -1;
static uint8_t *sent;            /* bodies of the stream, by log offset modulo the ring */
static uint64_t sent_at;         /* log offset of the next byte of a body */
static uint8_t head[12];
static uint32_t head_have, body_left;
static const uint64_t SENT_MASK = (1 << 20) - 1;
static uint64_t stream_at;       /* the next byte of the log that the stream carries */
static uint64_t first_file, files; /* log files that are there: [first_file, files) */
static uint64_t records_seen, links, ends[16];

static struct rmq_watermarks *marks(void) { return plane.watermarks; }

static void path_of(uint64_t file, char *path, size_t room)
{
    snprintf(path, room, "%s/%020llu", folder, (unsigned long long)(file * FILE_BYTES));
}

/* As flush does: the file of `offset` and the next one are there. Old ones go. */
static void keep_files(uint64_t offset)
{
    char path[600];
    for (uint64_t wanted = offset / FILE_BYTES + 2; files < wanted; files++)
        fuzz_must(rmq_segment_create(root, folder, files * FILE_BYTES, FILE_BYTES) == 0, "a log file can be made");
    for (; first_file + KEPT_FILES < offset / FILE_BYTES; first_file++) {
        path_of(first_file, path, sizeof path);
        unlink(path);
    }
}

/* --- the slave's log --------------------------------------------------------------------------------------- */

static void read_log(uint64_t offset, uint8_t *to, uint64_t length)
{
    char path[600];
    path_of(offset / FILE_BYTES, path, sizeof path);
    int fd = open(path, O_RDONLY);
    fuzz_must(fd >= 0 && pread(fd, to, length, (off_t)(offset % FILE_BYTES)) == (ssize_t)length, "the log can be read");
    close(fd);
}

/* [from, to) are whole records, and the bytes that were sent. */
static void check_appended(uint64_t from, uint64_t to)
{
    while (from < to) {
        uint64_t file_end = from - from % FILE_BYTES + FILE_BYTES, end = to < file_end ? to : file_end;
        uint8_t *bytes = malloc(end - from);
        read_log(from, bytes, end - from);
        for (uint64_t at = 0; at < end - from;) {
            struct rmq_record_view view;
            uint32_t size = rmq_get32(bytes + at);
            if (rmq_get32(bytes + at + 4) == RMQ_MAGIC_BLANK) {
                fuzz_must(from + at + size == file_end, "a blank ends its file");
            } else {
                fuzz_must(size <= end - from - at, "a record is whole");
                uint8_t *copy = malloc(size);
                memcpy(copy, bytes + at, size);
                fuzz_must(rmq_record_parse(copy, size, 0, &view) == RMQ_RECORD_OK, "a record is one");
                free(copy);
                records_seen++;
            }
            uint64_t compared = size < end - from - at ? size : end - from - at;
            for (uint64_t i = 0; i < compared; i++)
                fuzz_must(bytes[at + i] == sent[(from + at + i) & SENT_MASK], "the log holds what was sent");
            at += size;
        }
        free(bytes);
        from = end;
    }
}

static void take_reports(void)
{
    uint8_t reports[4096];
    ssize_t n;
    while ((n = recv(master, reports, sizeof reports, MSG_DONTWAIT)) > 0)
        for (ssize_t at = 0; at + 8 <= n; at += 8)
            fuzz_must(rmq_get64(reports + at) <= marks()->append_offset, "a report is not beyond the log");
}

/* --- link -------------------------------------------------------------------------------------------------- */

static void connect_master(void)
{
    int pair[2];
    if (master >= 0)
        close(master);
    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    master = pair[0];
    rmq_receiver_attach(receiver, pair[1]);
    stream_at = marks()->append_offset;
    sent_at = stream_at;
    head_have = body_left = 0;
    links++;
}

/* 1 while the link stands. */
static int run_receiver(void)
{
    uint64_t before = marks()->append_offset;
    int code = rmq_receiver_run(receiver, 0);
    fuzz_must(code >= 0, "the receiver runs");
    uint64_t after = marks()->append_offset;
    fuzz_must(after >= before && after <= stream_at + OUT_MAX, "append_offset only grows");
    check_appended(before, after);
    keep_files(after);
    if (fuzz_dice(2))
        marks()->flushed_offset = after;
    take_reports();
    if (code != RMQ_RUN_LINK)
        return 1;
    struct rmq_receiver_state state;
    rmq_receiver_state(receiver, &state);
    ends[state.reason < 16 ? state.reason : 0]++;
    fuzz_must(state.reason != RMQ_LINK_STORE, "the store has no fault");
    fuzz_must(state.received_offset == after, "what came behind the last record is gone");
    return 0;
}

/* The stream as its framing says, whatever became of that. */
static void note(const uint8_t *bytes, uint32_t length)
{
    while (length) {
        if (body_left) {
            sent[sent_at++ & SENT_MASK] = *bytes++;
            body_left--;
            length--;
            continue;
        }
        head[head_have++] = *bytes++;
        length--;
        if (head_have == sizeof head) {
            head_have = 0;
            body_left = rmq_get32(head + 8);
        }
    }
}

static int say(const uint8_t *bytes, uint32_t length)
{
    while (length) {
        uint32_t part = fuzz_dice(3) ? length : 1 + (uint32_t)fuzz_dice(length);
        ssize_t n = send(master, bytes, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return 0;
        note(bytes, n > 0 ? (uint32_t)n : 0);
        bytes += n > 0 ? n : 0;
        length -= n > 0 ? (uint32_t)n : 0;
        if ((n < 0 || !fuzz_dice(3)) && !run_receiver())
            return 0;
    }
    return 1;
}

/* --- transfers --------------------------------------------------------------------------------------------- */

static uint8_t pending[OUT_MAX]; /* bytes of the log that the stream has not carried */
static uint32_t pending_at, pending_length;

/* More of the log: a golden record in its place, or the blank when the file has no room for it. */
static void make_record(void)
{
    const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint64_t at = stream_at + pending_length - pending_at, left = FILE_BYTES - at % FILE_BYTES;
    uint8_t *to = pending + pending_length;
    if (golden->length + BLANK_BYTES > left) {
        memset(to, 0, left);
        rmq_put32(to, (uint32_t)left);
        rmq_put32(to + 4, RMQ_MAGIC_BLANK);
        pending_length += (uint32_t)left;
        return;
    }
    memcpy(to, golden->bytes, golden->length);
    rmq_put64(to + OFFSET_AT, at);
    if (!fuzz_dice(40)) { /* damaged, and not by the stream */
        uint32_t from = (uint32_t)fuzz_dice(golden->length);
        to[from] ^= (uint8_t)(1u << fuzz_dice(8));
    }
    pending_length += golden->length;
}

/* One input. 1 while the link stands. */
static int transfer(void)
{
    static uint8_t out[OUT_MAX + 64];
    if (pending_at == pending_length)
        pending_at = pending_length = 0;
    while (pending_length - pending_at < 2000 && pending_length + FILE_BYTES + 70000 < OUT_MAX)
        make_record();
    uint64_t room = FILE_BYTES - stream_at % FILE_BYTES;
    uint32_t length = pending_length - pending_at;
    if (fuzz_dice(2))
        length = (uint32_t)fuzz_dice(length) + 1;
    if (length > 32768)
        length = 32768;
    if (length > room)
        length = (uint32_t)room;
    if (!fuzz_dice(10))
        length = 0; /* a heartbeat */
    rmq_put64(out, stream_at);
    rmq_put32(out + 8, length);
    memcpy(out + 12, pending + pending_at, length);
    uint32_t total = 12 + length;
    if (!fuzz_dice(6)) {
        switch (fuzz_dice(5)) {
        case 0: rmq_put64(out, stream_at + (uint64_t)fuzz_edge()); break;
        case 1: rmq_put32(out + 8, (uint32_t)fuzz_edge()); break;
        case 2: total = fuzz_damage(out, total); break;
        case 3: total = 12 + fuzz_damage(out + 12, length); break;
        default: out[fuzz_dice(total)] ^= (uint8_t)(1u << fuzz_dice(8));
        }
    }
    stream_at += length;
    pending_at += length;
    return say(out, total) && run_receiver();
}

/* --- life -------------------------------------------------------------------------------------------------- */

static void open_receiver(void)
{
    int error = 0;
    receiver = rmq_receiver_open(&plane, &error);
    fuzz_must(receiver != NULL, "the receiver opens");
    pending_at = pending_length = 0;
    connect_master();
}

static void set_up(void)
{
    struct rmq_plane_capacity capacity = {.topics = 64, .queues = 64, .groups = 64, .subscriptions = 64, .offsets = 64,
                                          .parked_slots = 64,
                                          .commit_slots = 64, .arrived_slots = 8, .answerer_count = 1};
    capacity.answerers[0] = (struct rmq_answerer_plan){.role = RMQ_ROLE_CONTROL, .inbox_bytes = 65536, .answer_bytes = 65536,
                                                       .askers = 1u << RMQ_ROLE_HA | 1u << RMQ_ROLE_DISPATCH};
    plane.base = calloc(1, rmq_plane_bytes(&capacity));
    plane.watermarks = calloc(1, sizeof *plane.watermarks);
    fuzz_must(plane.base && plane.watermarks && rmq_plane_format(plane.base, &capacity, 1, (const uint64_t[2]){1, 2}) == 0, "plane");
    for (int role = 0; role < RMQ_ROLES_MAX; role++)
        plane.event_fds[role] = eventfd(0, EFD_NONBLOCK);
    struct rmq_settings *s = &rmq_plane_header_of(&plane)->settings;
    s->segment_bytes = FILE_BYTES;
    s->message_bytes_max = 65536;
    s->ha_heartbeat_ms = 1;
    s->ha_housekeeping_ms = 60000;
    s->populate_window_bytes = 65536;
    snprintf(s->commit_log_path, sizeof s->commit_log_path, "%s", folder);
    snprintf(s->store_path, sizeof s->store_path, "%s", root);
    marks()->confirm_limit = UINT64_MAX;
    marks()->tenure = RMQ_TENURE_SLAVE;
    rmq_plane_header_of(&plane)->ports.journal.owner = RMQ_ROLE_HA;
    sent = calloc(1, SENT_MASK + 1);
    keep_files(0);
    open_receiver();
}

int main(int argc, char **argv)
{
    fuzz_must(argc == 5, "GOLDEN SEED INPUTS FOLDER");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    snprintf(root, sizeof root, "%s", argv[4]);
    snprintf(folder, sizeof folder, "%.480s/commitlog", root);
    fuzz_must(rmq_folder_make(folder) == 0, "folder");
    set_up();
    long long inputs = atoll(argv[3]);
    for (long long n = 1; n <= inputs; n++) {
        rmq_header(&plane)->settings.sync_flush = fuzz_dice(4) == 0;
        if (!transfer()) {
            pending_at = pending_length = 0;
            connect_master();
        }
        if (n % LIFE_INPUTS == 0) { /* another process takes over */
            rmq_receiver_close(receiver);
            open_receiver();
        }
    }
    rmq_receiver_close(receiver);
    close(master);
    printf("{\"inputs\": %lld, \"records\": %llu, \"links\": %llu, \"ends\": [", inputs, (unsigned long long)records_seen,
           (unsigned long long)links);
    for (int i = 0; i < 10; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)ends[i]);
    printf("], \"append_offset\": %llu}\n", (unsigned long long)marks()->append_offset);
    free(plane.base);
    free(plane.watermarks);
    free(sent);
    return 0;
}
