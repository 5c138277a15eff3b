#include "fuzz.h"

struct fuzz_input *fuzz_golden;
uint32_t fuzz_golden_count;
static uint64_t state = 1;

void fuzz_seed(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
    if (!state)
        state = 1;
}

uint64_t fuzz_dice(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (state >> 11) % below : 0;
}

int64_t fuzz_edge(void)
{
    static const int64_t edges[] = {0, 1, -1, 2, 3, 4, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, INT32_MAX, INT32_MIN,
                                    (int64_t)INT32_MAX + 1, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 20, 4 << 20, 16 << 20};
    uint64_t edge = (uint64_t)edges[fuzz_dice(sizeof edges / sizeof *edges)];
    return (int64_t)(edge + (fuzz_dice(4) ? 0 : fuzz_dice(5) - 2));
}

void fuzz_must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "broken rule: %s\n", what);
        abort();
    }
}

void fuzz_read_golden(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t length;
    fuzz_must(file != NULL, "golden inputs can be read");
    while (fread(&length, sizeof length, 1, file) == 1) {
        fuzz_golden = realloc(fuzz_golden, (fuzz_golden_count + 1) * sizeof *fuzz_golden);
        struct fuzz_input *input = &fuzz_golden[fuzz_golden_count++];
        *input = (struct fuzz_input){.bytes = malloc(length ? length : 1), .length = length};
        fuzz_must(fread(input->bytes, 1, length, file) == length, "golden inputs are whole");
    }
    fclose(file);
    fuzz_must(fuzz_golden_count > 0, "there are golden inputs");
}

static void put_edge(uint8_t *bytes, uint32_t length)
{
    uint64_t value = (uint64_t)fuzz_edge();
    uint32_t width = fuzz_dice(2) ? 4 : 8;
    if (length < width)
        return;
    uint8_t *to = bytes + fuzz_dice(length - width + 1);
    for (uint32_t i = 0; i < width; i++)
        to[i] = (uint8_t)(value >> 8 * (width - 1 - i));
}

uint32_t fuzz_damage(uint8_t *bytes, uint32_t length)
{
    static const uint8_t tokens[] = "\"\\{}[],:u0d-1\x01\x02\xff\x7f\0 n$";
    for (uint64_t n = 1 + fuzz_dice(3); n && length; n--) {
        uint32_t at = (uint32_t)fuzz_dice(length);
        switch (fuzz_dice(7)) {
        case 0:
        case 1: bytes[at] ^= (uint8_t)(1u << fuzz_dice(8)); break;
        case 2: bytes[at] = tokens[fuzz_dice(sizeof tokens - 1)]; break;
        case 3: bytes[at] = (uint8_t)fuzz_dice(256); break;
        case 4: put_edge(bytes, length); break;
        case 5:
            if (length > 8)
                memmove(bytes + fuzz_dice(length - 8), bytes + fuzz_dice(length - 8), 1 + fuzz_dice(8));
            break;
        default:
            if (!fuzz_dice(4))
                length = at;
        }
    }
    return length;
}
