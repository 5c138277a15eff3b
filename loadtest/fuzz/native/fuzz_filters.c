/* Compiled SQL92 conditions that are damaged, checked and run under sanitizers: GOLDEN SEED INPUTS. Each input is one program
 * and the properties of one message.
 *
 * GOLDEN holds programs, each behind its length, and properties behind each. A program that the check accepts must end, and
 * read only its own bytes and those of the properties.
 */
#include "filter/filter_program.h"
#include "fuzz.h"

static uint64_t results[4], refused;

/* Bytes of their own, so that a read beyond them is a report. malloc aligns them. */
static uint8_t *own(const uint8_t *bytes, uint32_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    return copy;
}

static uint32_t program_length(const struct fuzz_input *input)
{
    uint32_t length;
    memcpy(&length, input->bytes, 4);
    return length;
}

/* Changes a word of the code, a constant or the head: the check accepts a part of these. */
static void change_a_word(uint8_t *program, uint32_t length)
{
    uint32_t word = (uint32_t)fuzz_dice(length / 4), value;
    memcpy(&value, program + word * 4, 4);
    value = fuzz_dice(3) ? value ^ (1u << fuzz_dice(12)) : (uint32_t)fuzz_edge();
    memcpy(program + word * 4, &value, 4);
}

static void run_one(void)
{
    const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)], *other = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint32_t length = program_length(golden), properties_length = other->length - 4 - program_length(other);
    uint8_t *bytes = own(golden->bytes + 4, length), *properties = own(other->bytes + 4 + program_length(other), properties_length);
    uint64_t work = 0;
    switch (fuzz_dice(4)) {
    case 0: break;
    case 1: length = fuzz_damage(bytes, length); break;
    default: change_a_word(bytes, length);
    }
    if (fuzz_dice(2))
        properties_length = fuzz_damage(properties, properties_length);
    uint8_t *program = own(bytes, length), *exact = own(properties, properties_length);
    if (rmq_filter_verify((const struct rmq_filter_program *)(const void *)program, length) < 0) {
        refused++;
    } else {
        int result = rmq_filter_evaluate((const struct rmq_filter_program *)(const void *)program, exact, properties_length, &work);
        fuzz_must(result >= 0 && result < 4, "a result");
        fuzz_must(work < 64 * 1024 * 1024, "a run ends");
        results[result]++;
    }
    const uint8_t *found;
    uint32_t found_length;
    if (rmq_filter_properties(exact, properties_length, &found, &found_length))
        fuzz_must(found >= exact && found + found_length <= exact + properties_length, "properties lie in their record");
    free(bytes);
    free(properties);
    free(program);
    free(exact);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t inputs = strtoull(argv[3], NULL, 10);
    fuzz_read_golden(argv[1]);
    fuzz_seed(strtoull(argv[2], NULL, 10));
    for (uint64_t i = 0; i < inputs; i++)
        run_one();
    printf("{\"inputs\": %llu, \"true\": %llu, \"false\": %llu, \"unknown\": %llu, \"throws\": %llu, \"refused\": %llu}\n",
           (unsigned long long)inputs, (unsigned long long)results[RMQ_FILTER_TRUE], (unsigned long long)results[RMQ_FILTER_FALSE],
           (unsigned long long)results[RMQ_FILTER_UNKNOWN], (unsigned long long)results[RMQ_FILTER_THROWS],
           (unsigned long long)refused);
    return 0;
}
