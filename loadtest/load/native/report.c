#include "report.h"

void report_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void report_latency(FILE *out, const char *name, const struct hist *h)
{
    double mean = h->count ? (double)h->sum / (double)h->count : 0;
    fprintf(out, "\"%s\":{\"count\":%llu,\"mean\":%.3f,\"min\":%.3f", name, (unsigned long long)h->count, mean / 1e3,
            h->count ? (double)h->min / 1e3 : 0.0);
    static const struct {
        const char *name;
        double percent;
    } points[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99_9", 99.9}, {"p99_99", 99.99}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        fprintf(out, ",\"%s\":%.3f", points[i].name, (double)hist_percentile(h, points[i].percent) / 1e3);
    fprintf(out, ",\"max\":%.3f}", (double)h->max / 1e3);
}

void report_run(FILE *out, const struct engine_result *r)
{
    double window = r->window_s > 0 ? r->window_s : 1e-9;
    fprintf(out, "\"window_s\":%.6f,\"messages\":%llu,\"answers\":%llu,\"messages_per_s\":%.1f,\"answers_per_s\":%.1f,",
            r->window_s, (unsigned long long)r->messages, (unsigned long long)r->answers,
            (double)r->messages / window, (double)r->answers / window);
    fprintf(out, "\"bytes_in\":%llu,\"bytes_out\":%llu,", (unsigned long long)r->bytes_in,
            (unsigned long long)r->bytes_out);
    report_latency(out, "latency_us", &r->latency);
    fputc(',', out);
    if (r->lag.count) {
        report_latency(out, "lag_us", &r->lag);
        fputc(',', out);
    }
    if (r->interval_count) {
        fprintf(out, "\"intervals\":[");
        for (uint32_t i = 0; i < r->interval_count; i++) {
            const struct interval *v = &r->intervals[i];
            fprintf(out, "%s{\"at_s\":%.3f,\"seconds\":%.3f,\"messages\":%llu,\"p50\":%.3f,\"p99\":%.3f,\"p99_9\":%.3f,"
                    "\"max\":%.3f}", i ? "," : "", v->at_s, v->seconds, (unsigned long long)v->messages, v->p50_us, v->p99_us,
                    v->p99_9_us, v->max_us);
        }
        fprintf(out, "],");
    }
    fprintf(out, "\"errors\":{");
    for (uint32_t i = 0; i < r->code_count; i++)
        fprintf(out, "%s\"%d\":%llu", i ? "," : "", r->codes[i].code, (unsigned long long)r->codes[i].count);
    fprintf(out, "},\"bad_answers\":%llu,\"unanswered\":%llu,\"disconnects\":%llu,", (unsigned long long)r->bad_answers,
            (unsigned long long)r->unanswered, (unsigned long long)r->disconnects);
    fprintf(out, "\"connected\":%u,\"still_open\":%u,\"frames_sent\":%llu,\"all_messages\":%llu,", r->connected,
            r->still_open, (unsigned long long)r->frames_sent, (unsigned long long)r->all_messages);
    fprintf(out, "\"loader_cpu\":{\"user_s\":%.3f,\"system_s\":%.3f,\"share\":%.3f},", r->user_s, r->system_s,
            (r->user_s + r->system_s) / window);
    fprintf(out, "\"remark\":");
    report_text(out, r->remark);
    fprintf(out, ",\"trouble\":");
    report_text(out, r->trouble);
    fputc(',', out);
}

void report_check(FILE *out, const struct check *k, const struct send_scenario *sent)
{
    if (!k->asked) {
        fprintf(out, "\"check\":null");
        return;
    }
    fprintf(out, "\"check\":{\"acked\":%llu,\"crc_sum\":%llu,\"in_queues\":%llu,\"queues_wrong\":%u,\"queue_ms\":%.3f,",
            (unsigned long long)sent->acked, (unsigned long long)sent->acked_crc_sum, (unsigned long long)k->in_queues,
            k->queues_wrong, k->queue_ms);
    fprintf(out, "\"index_ms\":%.3f,\"keys_asked\":%u,\"keys_found\":%u,", k->index_ms, k->keys_asked, k->keys_found);
    if (k->read_asked)
        fprintf(out, "\"read\":%llu,\"read_crc_sum\":%llu,\"wrong_crc\":%llu,\"wrong_offset\":%llu,",
                (unsigned long long)k->read_back.read, (unsigned long long)k->read_back.crc_sum,
                (unsigned long long)k->read_back.wrong_crc, (unsigned long long)k->read_back.wrong_offset);
    fprintf(out, "\"trouble\":");
    report_text(out, k->trouble);
    fprintf(out, ",\"ok\":%s}", k->ok ? "true" : "false");
}

void report_watch(FILE *out, const struct watch *w)
{
    fprintf(out, "\"watched\":{");
    for (int i = 0; i < w->count; i++)
        fprintf(out, "%s\"%d\":{\"user_s\":%.3f,\"system_s\":%.3f}", i ? "," : "", w->processes[i].pid,
                w->processes[i].user_s, w->processes[i].system_s);
    fprintf(out, "},");
}

int report_clean(const struct engine_result *r)
{
    return r->code_count == 0 && r->bad_answers == 0 && r->unanswered == 0 && r->disconnects == 0 && r->trouble[0] == 0;
}
