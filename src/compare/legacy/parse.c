/* parse.c - what ptdbg_ascend.parse() prints: stacks as Python shows a traceback, statistics as one line each.
 */
#include "compare/legacy/legacy.h"
#include "text/pytext.h"
#include "core/file.h"
#include "dump/dump_read.h"

/* Outermost frame first: the file has it the other way round. */
static void
add_stack(msp_buf *out, const msp_legacy_line *line)
{
    msp_buf_text(out, "\nTrace back(");
    msp_buf_str(out, line->name);
    msp_buf_text(out, "):\n");
    for (size_t i = msp_json_count(line->frames); i > 0; i--) {
        const msp_json *frame = msp_json_at(line->frames, i - 1);

        msp_buf_text(out, "  File \"");
        msp_py_str(out, msp_json_at(frame, 0));
        msp_buf_text(out, "\", line ");
        msp_py_str(out, msp_json_at(frame, 1));
        msp_buf_text(out, ", in ");
        msp_py_str(out, msp_json_at(frame, 2));
        msp_buf_text(out, "\n    ");
        msp_py_str(out, msp_json_at(frame, 3));
        msp_buf_char(out, '\n');
    }
}

static void
add_field(msp_buf *out, const char *title, const msp_json *v)
{
    msp_buf_printf(out, "[%s: ", title);
    msp_py_str(out, v);
    msp_buf_char(out, ']');
}

static void
add_statistics(msp_buf *out, const msp_legacy_line *line, bool *headed)
{
    static const char *const titles[] = {"max", "min", "mean", "l2norm"};
    size_t n = msp_json_count(line->stats);

    if (!*headed)
        msp_buf_text(out, "\nStatistic Info:\n");
    *headed = true;
    msp_buf_text(out, "  [");
    msp_buf_str(out, line->name);
    msp_buf_char(out, ']');
    add_field(out, "dtype", line->dtype);
    add_field(out, "shape", line->shape);
    for (size_t i = 0; i < n && i < 4; i++)
        add_field(out, titles[i], msp_json_at(line->stats, i));
    msp_buf_char(out, '\n');
}

msp_status
msp_legacy_parse_text(const char *text, size_t size, const char *path, msp_str prefix, msp_legacy_sink *sink,
                      void *payload, msp_error *err)
{
    msp_legacy_reader r = {.text = text, .size = size, .path = path};
    msp_legacy_line line;
    bool more = true, headed = false;
    msp_buf out = {0};
    msp_status st;

    while ((st = msp_legacy_next(&r, &line, &more, err)) == MSP_OK && more) {
        msp_buf_clear(&out);
        if (!msp_str_starts(line.name, prefix))
            continue;
        if (line.kind == LEGACY_STACK)
            add_stack(&out, &line);
        else if (line.stats != NULL)
            add_statistics(&out, &line, &headed);
        st = msp_buf_status(&out, err);
        if (st == MSP_OK && out.len > 0 && !sink(out.p, out.len, payload))
            st = msp_error_set(err, MSP_E_CANCELLED, "cancelled");
        if (st != MSP_OK)
            break;
    }
    msp_buf_release(&out);
    msp_legacy_reader_release(&r);
    return st;
}

msp_status
msp_legacy_parse(const char *path, const char *prefix, msp_legacy_sink *sink, void *payload, msp_error *err)
{
    msp_mapping map = {0};
    msp_status st = msp_dump_check_owner(path, err);

    if (st == MSP_OK)
        st = msp_map_open(&map, path, err);
    if (st == MSP_OK)
        st = msp_legacy_parse_text(map.addr, map.size, path, msp_str_of(prefix), sink, payload, err);
    msp_map_close(&map);
    return st;
}
